package memqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// stress has everything happen at once. Senders repeat what was not stored, as
// the engine does; what was stored must have been acked in every group.
type stress struct {
	q     *memqueue.Queue
	mu    sync.Mutex
	acked map[string]bool // group and id
}

func TestNothingStoredIsLostUnderFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{ConfirmTimeout: 2 * time.Second})
		s := &stress{q: q, acked: make(map[string]bool)}
		ctx, cancel := context.WithCancel(t.Context())
		var receivers, senders sync.WaitGroup
		for _, group := range []string{"a", "a", "b", "b", "c"} {
			src := transport.Source{Group: group, Topics: []string{"t.*"}, Window: 1 + dice(8)}
			if err := q.Declare(ctx, src); err != nil {
				t.Fatal(err)
			}
			receivers.Go(func() { s.receive(ctx, src) })
		}
		receivers.Go(func() { s.disturb(ctx) })
		for n := range 8 {
			senders.Go(func() { s.send(t, fmt.Sprint(n)) })
		}
		senders.Wait()
		cancel()
		receivers.Wait()
	})
}

// receive runs one receiver after the other, each for a while.
func (s *stress) receive(ctx context.Context, src transport.Source) {
	for ctx.Err() == nil {
		rctx, cancel := context.WithTimeout(ctx, time.Duration(dice(1000))*time.Millisecond)
		_ = s.q.Receive(rctx, src, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				s.answer(src.Group, d)
			}
		})
		cancel()
		pass(time.Duration(dice(100)) * time.Millisecond)
	}
}

// dice returns a number from 0 to n-1.
func dice(n int) int {
	return rand.IntN(n) //nolint:gosec // no secret
}

func (s *stress) answer(group string, d transport.Delivery) {
	switch dice(6) {
	case 0:
		_ = d.Nack(0)
	case 1:
		_ = d.Nack(time.Duration(dice(200)) * time.Millisecond)
	case 2: // given back when the receiver leaves
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.Ack() == nil {
			s.acked[group+d.Message().ID] = true
		}
	}
}

func (s *stress) disturb(ctx context.Context) {
	for ctx.Err() == nil {
		pass(time.Duration(dice(3000)) * time.Millisecond)
		switch dice(3) {
		case 0:
			s.q.Disconnect()
			pass(time.Duration(dice(500)) * time.Millisecond)
			s.q.Reconnect()
		case 1:
			release := s.q.HoldConfirms()
			pass(time.Duration(dice(500)) * time.Millisecond)
			release()
		default:
			s.q.SetFaults(memqueue.Faults{
				SendDelay:    time.Duration(dice(3)) * time.Millisecond,
				ConfirmDelay: time.Duration(dice(3)) * time.Millisecond,
			})
		}
	}
}

func (s *stress) send(t *testing.T, sender string) {
	t.Helper()
	for batch := range 40 {
		var left []*transport.Message
		for i := range 1 + batch%5 {
			left = append(left, message("t.x", fmt.Sprintf("%s-%d-%d", sender, batch, i)))
		}
		for len(left) > 0 {
			errs := s.q.Send(t.Context(), left)
			var again []*transport.Message
			for i, err := range errs {
				if err != nil {
					again = append(again, left[i])
					continue
				}
				s.wantAcked(t, left[i].ID)
			}
			left = again
			pass(10 * time.Millisecond)
		}
	}
}

func (s *stress) wantAcked(t *testing.T, id string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, group := range []string{"a", "b", "c"} {
		if !s.acked[group+id] {
			t.Errorf("message %s is stored, but group %s has not acked it", id, group)
		}
	}
}
