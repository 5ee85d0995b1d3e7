package storagetest

import (
	"context"

	"github.com/capbus/gocap/storage"
)

// blind changes what a glance is asked for, and what it has seen.
func blind(ask func(q *storage.GlanceQuery), seen func(g *storage.Glance)) func(b *broken) {
	return func(b *broken) {
		b.glance = func(ctx context.Context, m storage.Glancer, q storage.GlanceQuery) (storage.Glance, error) {
			if ask != nil {
				ask(&q)
			}
			g, err := m.Glance(ctx, q)
			if seen != nil {
				seen(&g)
			}
			return g, err
		}
	}
}

func glanceMutants() []mutant {
	return []mutant{
		{"glance that sees all", "glance/nothing", blind(nil, func(g *storage.Glance) { g.Orphans, g.Keys, g.Unmatched = true, true, true })},
		{"glance at no row of its own", "glance/next", blind(nil, func(g *storage.Glance) { g.Next = -1 })},
		{"glance to which nothing is due", "glance/next", blind(nil, func(g *storage.Glance) {
			if g.Next == 0 {
				g.Next = 1
			}
		})},
		{"glance at no orphans", "glance/orphans", blind(nil, func(g *storage.Glance) { g.Orphans = false })},
		{"glance at owners as they once were", "glance/owners", blind(nil, sticky(func(g *storage.Glance) *bool { return &g.Orphans }))},
		{"glance that overlooks the dead", "glance/dead", blind(nil, func(g *storage.Glance) { g.Orphans = false })},
		{"glance without locks", "glance/locked", blind(func(q *storage.GlanceQuery) { q.Locked = false }, nil)},
		{"glance at no keys", "glance/keys", blind(nil, func(g *storage.Glance) { g.Keys = false })},
		{"glance at no unmatched row", "glance/unmatched", blind(nil, func(g *storage.Glance) { g.Unmatched = false })},
		{"glance at the first lanes", "glance/many", blind(func(q *storage.GlanceQuery) { q.Lanes = q.Lanes[:min(1, len(q.Lanes))] }, nil)},
		{"glance by the ended", "glance/lost", func(b *broken) {
			b.glance = func(ctx context.Context, m storage.Glancer, q storage.GlanceQuery) (storage.Glance, error) {
				g, _ := m.Glance(ctx, q)
				return g, nil
			}
		}},
	}
}

// sticky keeps what was seen first.
func sticky(of func(g *storage.Glance) *bool) func(g *storage.Glance) {
	var first *bool
	return func(g *storage.Glance) {
		if first == nil {
			v := *of(g)
			first = &v
		}
		*of(g) = *first
	}
}
