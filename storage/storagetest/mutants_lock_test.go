package storagetest

import (
	"context"
)

// lockingBy decides before a look whether the member has the locks that it
// needs, and may change what is looked for.
func lockingBy(may func(b *broken, m member, q *query) bool) func(b *broken) {
	return func(b *broken) {
		b.takeOver = func(ctx context.Context, m member, q query) (records, error) {
			if !may(b, m, &q) {
				return nil, nil
			}
			return m.TakeOver(ctx, q)
		}
	}
}

// first reports whether the member is the first one who asked for a name.
func (b *broken) first(m member, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holders == nil {
		b.holders = map[string]int64{}
	}
	if b.holders[name] == 0 {
		b.holders[name] = m.Number()
	}
	return b.holders[name] == m.Number()
}

func lockMutants() []mutant {
	return []mutant{
		{"locks ignored", "lock/one", lockingBy(func(_ *broken, _ member, q *query) bool { q.Locked = false; return true })},
		{"one lock for all", "lock/lanes", lockingBy(func(b *broken, m member, q *query) bool {
			return !q.Locked || b.first(m, "all")
		})},
		{"a lock of all versions", "lock/others", lockingBy(func(b *broken, m member, q *query) bool {
			return !q.Locked || b.first(m, q.Lanes[0].Group+q.Lanes[0].Subscriber)
		})},
		{"ids are locked", "lock/without", lockingBy(func(b *broken, m member, q *query) bool {
			return !q.Locked || b.first(m, "any")
		})},
		{"always locked", "lock/without", lockingBy(func(_ *broken, _ member, q *query) bool { q.Locked = len(q.IDs) == 0; return true })},
		{"a lock for ever", "lock/left", lockingBy(func(b *broken, m member, q *query) bool {
			return !q.Locked || len(q.IDs) > 0 || b.first(m, "s")
		})},
	}
}
