package cap_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
)

// unsure stores the first outcomes of the inbox, and says that it has not.
type unsure struct {
	storage.Storage

	settled *atomic.Bool
}

type unsureMember struct {
	storage.Member

	settled *atomic.Bool
}

func (s unsure) Join(ctx context.Context, in storage.Instance) (storage.Member, error) {
	m, err := s.Storage.Join(ctx, in)
	if err != nil || in.Box != storage.Inbox {
		return m, err
	}
	return unsureMember{m, s.settled}, nil
}

func (m unsureMember) Settle(ctx context.Context, outcomes ...storage.Outcome) ([]storage.ID, error) {
	lost, err := m.Member.Settle(ctx, outcomes...)
	if !m.settled.Swap(true) {
		return nil, errors.New("the connection was lost after the commit")
	}
	return lost, err
}

// TestAnOutcomeThatIsStoredTwiceIsCountedOnce: whether a write that failed has
// taken place is not known, so it is done again.
func TestAnOutcomeThatIsStoredTwiceIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var settled atomic.Bool
		var runs atomic.Int64
		base := newRig(t, cap.Options{})
		r := base.again(t, cap.Options{Storage: unsure{base.store, &settled}, FailedRetryCount: 10},
			subscribe.To("t", func(context.Context, string) error {
				runs.Add(1)
				return errors.New("no")
			})).start(t)
		if err := r.Publish(t.Context(), cap.NoTx, "t", "x"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Hour)
		if rec := r.row(t, storage.Inbox); runs.Load() != 10 || rec.Retries != 10 {
			t.Errorf("%d runs, %d attempts counted", runs.Load(), rec.Retries)
		}
	})
}
