package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/capbus/gocap/storage"
)

func (b *broken) Waiting(ctx context.Context, box storage.Box, version string, most int) ([]storage.Waiting, error) {
	list, err := b.Storage.(storage.Inspector).Waiting(ctx, box, version, 1000)
	if b.waiting != nil {
		return b.waiting(list, most), err
	}
	for i := range list {
		list[i].Unmatched = min(list[i].Unmatched, most)
	}
	return list, err
}

func (b *broken) Versions(ctx context.Context, box storage.Box, most int) ([]storage.VersionRows, error) {
	if b.versions == nil {
		return b.Storage.(storage.Inspector).Versions(ctx, box, most)
	}
	list, err := b.Storage.(storage.Inspector).Versions(ctx, box, 1000)
	return b.versions(list, most), err
}

// waitingAs tells each entry wrongly.
func waitingAs(f func(w *storage.Waiting)) func(b *broken) {
	return func(b *broken) {
		b.waiting = func(list []storage.Waiting, most int) []storage.Waiting {
			for i := range list {
				list[i].Unmatched = min(list[i].Unmatched, most)
				f(&list[i])
			}
			return list
		}
	}
}

func versionsAs(f func(v *storage.VersionRows, most int)) func(b *broken) {
	return func(b *broken) {
		b.versions = func(list []storage.VersionRows, most int) []storage.VersionRows {
			for i := range list {
				f(&list[i], most)
			}
			return list
		}
	}
}

func inspectMutants() []mutant {
	return []mutant{
		{"nothing waits", "inspect/outbox", func(b *broken) {
			b.waiting = func([]storage.Waiting, int) []storage.Waiting { return nil }
		}},
		{"an entry for no rows", "inspect/outbox", func(b *broken) {
			b.waiting = func(list []storage.Waiting, _ int) []storage.Waiting {
				if len(list) == 0 {
					return []storage.Waiting{{}}
				}
				return list
			}
		}},
		{"age of the youngest", "inspect/outbox", waitingAs(func(w *storage.Waiting) { w.Overdue, w.Age = 1, 1 })},
		{"one group alone", "inspect/groups", func(b *broken) {
			b.waiting = func(list []storage.Waiting, _ int) []storage.Waiting { return list[:1] }
		}},
		{"all versions", "inspect/groups", func(b *broken) {
			b.waiting = func(list []storage.Waiting, _ int) []storage.Waiting {
				groups := map[string]bool{}
				for _, r := range b.rows(storage.Inbox) {
					if !groups[r.Group] && !slices.ContainsFunc(list, func(w storage.Waiting) bool { return w.Group == r.Group }) {
						list = append(list, storage.Waiting{Group: r.Group})
					}
					groups[r.Group] = true
				}
				return list
			}
		}},
		{"one of the owners", "inspect/owners", waitingAs(func(w *storage.Waiting) {
			if w.Group == "tb" {
				w.Overdue = 1
			}
		})},
		{"due in the future as overdue", "inspect/later", waitingAs(func(w *storage.Waiting) { w.Overdue = max(w.Overdue, time.Hour) })},
		{"age of what was put off", "inspect/later", waitingAs(func(w *storage.Waiting) { w.Age = max(w.Age, time.Hour) })},
		{"no age of what has failed", "inspect/later", waitingAs(func(w *storage.Waiting) {
			if w.Overdue == 0 {
				w.Age = 0
			}
		})},
		{"unmatched not counted", "inspect/unmatched", waitingAs(func(w *storage.Waiting) { w.Unmatched = 0 })},
		{"counted without a bound", "inspect/unmatched", func(b *broken) {
			b.waiting = func(list []storage.Waiting, _ int) []storage.Waiting { return list }
		}},
		{"rows with a key do not wait", "inspect/keys", waitingAs(func(w *storage.Waiting) {
			if w.Group == "keyed" {
				*w = storage.Waiting{}
			}
		})},
		{"those that match none with a key not counted", "inspect/keys-unmatched", waitingAs(func(w *storage.Waiting) { w.Unmatched = min(w.Unmatched, 2) })},
		{"rows of a version with a key not counted", "inspect/keys-versions", versionsAs(func(v *storage.VersionRows, most int) {
			v.Rows = min(v.Rows, most, 1)
		})},
		{"finished rows wait", "inspect/finished", func(b *broken) {
			b.waiting = func([]storage.Waiting, int) []storage.Waiting { return []storage.Waiting{{Group: "a"}} }
		}},
		{"versions out of order", "inspect/versions", func(b *broken) {
			b.versions = func(list []storage.VersionRows, _ int) []storage.VersionRows {
				slices.Reverse(list)
				return list
			}
		}},
		{"rows of a version counted without a bound", "inspect/versions", versionsAs(func(*storage.VersionRows, int) {})},
		{"rows not counted", "inspect/versions", versionsAs(func(v *storage.VersionRows, most int) { v.Rows = min(1, most) })},
		{"always living", "inspect/versions-living", versionsAs(func(v *storage.VersionRows, _ int) { v.Living = true })},
		{"never living", "inspect/versions-living", versionsAs(func(v *storage.VersionRows, _ int) { v.Living = false })},
	}
}
