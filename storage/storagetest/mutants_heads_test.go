package storagetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

type heads = []storage.Head

// asking changes what Heads is asked for.
func asking(f func(q *storage.HeadQuery)) func(b *broken) {
	return func(b *broken) {
		b.heads = func(ctx context.Context, m member, q storage.HeadQuery) (heads, error) {
			f(&q)
			return m.Heads(ctx, q)
		}
	}
}

// heading changes what Heads answers.
func heading(f func(b *broken, m member, q storage.HeadQuery, found heads) heads) func(b *broken) {
	return func(b *broken) {
		b.heads = func(ctx context.Context, m member, q storage.HeadQuery) (heads, error) {
			found, err := m.Heads(ctx, q)
			return f(b, m, q, found), err
		}
	}
}

// outOf returns the heads that a wrong rule finds in the outbox: the first rows
// for which it holds, or the last of equal keys.
func outOf(last bool, rule func(m member, r *record) bool) func(b *broken) {
	return heading(func(b *broken, m member, _ storage.HeadQuery, _ heads) heads {
		byKey := map[string]storage.Head{}
		for _, r := range b.rows(storage.Outbox) {
			if _, there := byKey[r.Key]; r.Key != "" && rule(m, r) && (last || !there) {
				byKey[r.Key] = storage.Head{Key: r.Key, ID: r.ID, Owner: r.Owner}
			}
		}
		var found heads
		for _, h := range byKey {
			found = append(found, h)
		}
		slices.SortFunc(found, func(a, b storage.Head) int { return strings.Compare(a.Key, b.Key) })
		return found
	})
}

func headMutants() []mutant {
	eachHead := func(f func(h *storage.Head)) func(b *broken) {
		return heading(func(_ *broken, _ member, _ storage.HeadQuery, found heads) heads {
			for i := range found {
				f(&found[i])
			}
			return found
		})
	}
	return append(keyLaneMutants(), []mutant{
		{"last of a key", "heads/first", outOf(true, func(_ member, r *record) bool { return !r.Final })},
		{"final rows are heads", "heads/unfinished", outOf(false, func(member, *record) bool { return true })},
		{"own rows alone", "heads/whoever-owns", outOf(false, func(m member, r *record) bool { return !r.Final && r.Owner == m.Number() })},
		{"failed rows are passed by", "heads/failed-again", outOf(false, func(_ member, r *record) bool { return !r.Final && r.Status != storage.Failed })},
		{"everybody lives", "heads/fields", eachHead(func(h *storage.Head) { h.Living = true })},
		{"nobody lives", "heads/fields", eachHead(func(h *storage.Head) { h.Living = false })},
		{"no size", "heads/fields", eachHead(func(h *storage.Head) { h.Bytes = 0 })},
		{"all are due", "heads/failed-again", eachHead(func(h *storage.Head) { h.DueIn = 0 })},
		{"group ignored", "heads/lanes", asking(func(q *storage.HeadQuery) { q.Group = "g" })},
		{"subscriber ignored", "heads/lanes", asking(func(q *storage.HeadQuery) { q.Subscriber = "s" })},
		{"page without limit", "heads/pages", asking(func(q *storage.HeadQuery) { q.Limit = 1000 })},
		{"page includes its start", "heads/pages", asking(func(q *storage.HeadQuery) {
			if n := len(q.After); n > 0 {
				q.After = q.After[:n-1] + string(q.After[n-1]-1) + "z"
			}
		})},
		{"keys ignored", "heads/keys", asking(func(q *storage.HeadQuery) { q.Keys, q.After, q.Limit = nil, "", 1000 })},
		{"a key twice", "heads/keys", heading(func(_ *broken, _ member, _ storage.HeadQuery, found heads) heads {
			return append(found, found[:min(1, len(found))]...)
		})},
		{"keys in lower case", "heads/bytes-of-keys", asking(func(q *storage.HeadQuery) {
			for i := range q.Keys {
				q.Keys[i] = strings.ToLower(q.Keys[i])
			}
		})},
	}...)
}

// keyLaneMutants treat rows with a key as any other.
func keyLaneMutants() []mutant {
	keyed := func(ctx context.Context, m member, q query) (recs records) {
		for _, l := range q.Lanes {
			found, _ := m.Heads(ctx, storage.HeadQuery{Group: l.Group, Subscriber: l.Subscriber, Limit: 1000})
			for _, h := range found {
				more, _, _ := m.Due(ctx, query{IDs: []storage.ID{h.ID}})
				recs = append(recs, more...)
			}
		}
		return recs
	}
	return []mutant{
		{"due by lane with keys", "heads/not-by-lane", func(b *broken) {
			b.due = func(ctx context.Context, m member, q query) (records, time.Duration, error) {
				recs, next, err := m.Due(ctx, q)
				return append(recs, keyed(ctx, m, q)...), next, err
			}
		}},
		{"owed callbacks with a key are left out", "heads/owed-callback", answered(func(r records, next time.Duration) (records, time.Duration) {
			return slices.DeleteFunc(r, func(rec *record) bool { return rec.Key != "" }), next
		})},
		{"accepted in the order of ids", "heads/order-of-accept", func(b *broken) {
			b.accept = func(ctx context.Context, m member, recs records) (records, error) {
				recs = slices.Clone(recs)
				slices.SortFunc(recs, func(a, b *record) int { return strings.Compare(a.MessageID, b.MessageID) })
				return m.Accept(ctx, recs...)
			}
		}},
		{"stale rows with a key are left out", "heads/stale", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				recs, err := m.TakeOver(ctx, q)
				return slices.DeleteFunc(recs, func(r *record) bool { return r.Key != "" }), err
			}
		}},
		{"heads of others are not loaded", "heads/by-id", func(b *broken) {
			b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
				if len(q.IDs) > 0 {
					return nil, nil
				}
				return m.TakeOver(ctx, q)
			}
		}},
	}
}
