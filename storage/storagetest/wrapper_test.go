package storagetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
)

type (
	records = []*storage.Record
	record  = storage.Record
	member  = storage.Member
	query   = storage.Query
)

// broken is a memstore of which some methods are replaced by wrong ones; a
// field that is nil leaves the method as it is.
type broken struct {
	storage.Storage

	bind  func(tx any) (storage.Writer, error)
	begin func(ctx context.Context) (storage.Tx, error)
	join  func(ctx context.Context, in storage.Instance) (member, error)
	purge func(ctx context.Context, p storage.Purge) (int, error)

	accept    func(ctx context.Context, m member, recs records) (records, error)
	due       func(ctx context.Context, m member, q query) (records, time.Duration, error)
	glance    func(ctx context.Context, m storage.Glancer, q storage.GlanceQuery) (storage.Glance, error)
	heads     func(ctx context.Context, m member, q storage.HeadQuery) ([]storage.Head, error)
	takeOver  func(ctx context.Context, m member, q query) (records, error)
	claim     func(ctx context.Context, m member, recs records) (records, error)
	settle    func(ctx context.Context, m member, outcomes []storage.Outcome) ([]storage.ID, error)
	unmatched func(ctx context.Context, m member, groups []string, after int64, limit int) (records, error)
	split     func(ctx context.Context, m member, row *record, into records) (records, error)
	beat      func(ctx context.Context, m member) error
	leave     func(ctx context.Context, m member) error

	appendTx func(ctx context.Context, tx storage.Tx, recs records) error
	settleTx func(ctx context.Context, tx storage.Tx, m member, o storage.Outcome) error
	commit   func(tx storage.Tx) error
	rollback func(tx storage.Tx) error

	list   func(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error)
	change func(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error)
	count  func(ctx context.Context, q storage.CountQuery) (storage.Counts, error)

	waiting  func(list []storage.Waiting, most int) []storage.Waiting
	versions func(list []storage.VersionRows, most int) []storage.VersionRows

	mu      sync.Mutex
	members []member
	holders map[string]int64 // of the locks of mutants that have their own
}

// CanLock: memstore can.
func (b *broken) CanLock() {}

func newBroken() *broken { return &broken{Storage: memstore.New(memstore.Config{})} }

// rows returns what is in a box.
func (b *broken) rows(box storage.Box) records { return b.Storage.(*memstore.Store).Records(box) }

// joined returns the members of the store, the given one last.
func (b *broken) joined(last member) []member {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(b.members), func(m member) bool { return m == last })
	return append(all, last)
}

func (b *broken) Bind(tx any) (storage.Writer, error) {
	if b.bind != nil {
		return b.bind(tx)
	}
	return b.Storage.Bind(tx)
}

func (b *broken) Begin(ctx context.Context) (storage.Tx, error) {
	begin := b.Storage.Begin
	if b.begin != nil {
		begin = b.begin
	}
	tx, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	return &brokenTx{Tx: tx, b: b}, nil
}

func (b *broken) Join(ctx context.Context, in storage.Instance) (member, error) {
	join := b.Storage.Join
	if b.join != nil {
		join = b.join
	}
	m, err := join(ctx, in)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members = append(b.members, m)
	return &brokenMember{Member: m, b: b}, nil
}

func (b *broken) Purge(ctx context.Context, p storage.Purge) (int, error) {
	if b.purge != nil {
		return b.purge(ctx, p)
	}
	return b.Storage.Purge(ctx, p)
}

// operator is that of the store underneath.
func (b *broken) operator() storage.Operator { return b.Storage.(storage.Operator) }

func (b *broken) List(ctx context.Context, f storage.Filter, p storage.Page) (storage.Listing, error) {
	if b.list != nil {
		return b.list(ctx, f, p)
	}
	return b.operator().List(ctx, f, p)
}

func (b *broken) Change(ctx context.Context, a storage.Action, f storage.Filter) ([]storage.ID, error) {
	if b.change != nil {
		return b.change(ctx, a, f)
	}
	return b.operator().Change(ctx, a, f)
}

func (b *broken) Count(ctx context.Context, q storage.CountQuery) (storage.Counts, error) {
	if b.count != nil {
		return b.count(ctx, q)
	}
	return b.operator().Count(ctx, q)
}

type brokenTx struct {
	storage.Tx
	b *broken
}

func (t *brokenTx) Append(ctx context.Context, recs ...*record) error {
	if t.b.appendTx != nil {
		return t.b.appendTx(ctx, t.Tx, recs)
	}
	return t.Tx.Append(ctx, recs...)
}

func (t *brokenTx) Settle(ctx context.Context, m member, o storage.Outcome) error {
	inner := m.(*brokenMember).Member
	if t.b.settleTx != nil {
		return t.b.settleTx(ctx, t.Tx, inner, o)
	}
	return t.Tx.Settle(ctx, inner, o)
}

func (t *brokenTx) Commit() error {
	if t.b.commit != nil {
		return t.b.commit(t.Tx)
	}
	return t.Tx.Commit()
}

func (t *brokenTx) Rollback() error {
	if t.b.rollback != nil {
		return t.b.rollback(t.Tx)
	}
	return t.Tx.Rollback()
}

type brokenMember struct {
	storage.Member
	b *broken
}

func (m *brokenMember) Accept(ctx context.Context, recs ...*record) (records, error) {
	if m.b.accept != nil {
		return m.b.accept(ctx, m.Member, recs)
	}
	return m.Member.Accept(ctx, recs...)
}

func (m *brokenMember) Due(ctx context.Context, q query) (records, time.Duration, error) {
	if m.b.due != nil {
		return m.b.due(ctx, m.Member, q)
	}
	return m.Member.Due(ctx, q)
}

func (m *brokenMember) Glance(ctx context.Context, q storage.GlanceQuery) (storage.Glance, error) {
	inner := m.Member.(storage.Glancer)
	if m.b.glance != nil {
		return m.b.glance(ctx, inner, q)
	}
	return inner.Glance(ctx, q)
}

func (m *brokenMember) Heads(ctx context.Context, q storage.HeadQuery) ([]storage.Head, error) {
	if m.b.heads != nil {
		return m.b.heads(ctx, m.Member, q)
	}
	return m.Member.Heads(ctx, q)
}

func (m *brokenMember) TakeOver(ctx context.Context, q query) (records, error) {
	if m.b.takeOver != nil {
		return m.b.takeOver(ctx, m.Member, q)
	}
	return m.Member.TakeOver(ctx, q)
}

func (m *brokenMember) Claim(ctx context.Context, recs ...*record) (records, error) {
	if m.b.claim != nil {
		return m.b.claim(ctx, m.Member, recs)
	}
	return m.Member.Claim(ctx, recs...)
}

func (m *brokenMember) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	if m.b.settle != nil {
		return m.b.settle(ctx, m.Member, outcomes)
	}
	return m.Member.Settle(ctx, outcomes...)
}

func (m *brokenMember) Unmatched(ctx context.Context, groups []string, after int64, limit int) (records, error) {
	if m.b.unmatched != nil {
		return m.b.unmatched(ctx, m.Member, groups, after, limit)
	}
	return m.Member.Unmatched(ctx, groups, after, limit)
}

func (m *brokenMember) Split(ctx context.Context, row *record, into ...*record) (records, error) {
	if m.b.split != nil {
		return m.b.split(ctx, m.Member, row, into)
	}
	return m.Member.Split(ctx, row, into...)
}

func (m *brokenMember) Beat(ctx context.Context) error {
	if m.b.beat != nil {
		return m.b.beat(ctx, m.Member)
	}
	return m.Member.Beat(ctx)
}

func (m *brokenMember) Leave(ctx context.Context) error {
	if m.b.leave != nil {
		return m.b.leave(ctx, m.Member)
	}
	return m.Member.Leave(ctx)
}
