package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// TestC110LateCommit: a transaction that has its place in the table long before
// others, and commits long after them, is not passed over; nor by any group.
func TestC110LateCommit(t *testing.T) {
	t.Parallel()
	for _, db := range databases()[1:] { // SQLite has one that writes at a time
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			store := db.make(t).store
			var one, two journal
			bus := begun(t, made(t, store, memqueue.New(memqueue.Config{}), func(o *cap.Options) { o.PollInterval = 20 * time.Millisecond },
				serving(inGroup("t", one.handle), subscribe.To("t", two.handle, subscribe.Group("h")))))
			var mu sync.Mutex
			var want []string
			const rounds = 10
			crowd(rounds, 3, func(i int) {
				ids := []string{fmt.Sprint("late ", i)}
				err := store.DB().Transaction(func(late *gorm.DB) error {
					if err := bus.Publish(t.Context(), late, "t", ids[0]); err != nil {
						return err
					}
					for n := range 5 { // get their places later, and are done first
						ids = append(ids, fmt.Sprint("early ", i, "-", n))
						if err := bus.Publish(t.Context(), cap.NoTx, "t", ids[n+1]); err != nil {
							return err
						}
					}
					one.waitFor(t, ids[1:])
					two.waitFor(t, ids[1:])
					<-time.After(100 * time.Millisecond) // several scans go behind them
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				want = append(want, ids...)
				mu.Unlock()
			})
			one.wait(t, len(want))
			two.wait(t, len(want))
			settled(t, store.DB(), window)
			one.exactly(t, want)
			two.exactly(t, want)
		})
	}
}

// TestC026Order: messages of one key, each in a transaction of its own, are
// handled as they were published; one that fails to be sent holds up those behind
// it, and nothing else.
func TestC026Order(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name+", memqueue", func(t *testing.T) {
			t.Parallel()
			q := memqueue.New(memqueue.Config{})
			var mu sync.Mutex
			failed := 0
			q.SetFaults(memqueue.Faults{Refuse: func(m *transport.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if string(m.Body) == `"100"` && failed < 2 {
					failed++
					return fmt.Errorf("%w: not now", transport.ErrRejected)
				}
				return nil
			}})
			inOrder(t, db.make(t), over(q))
			if failed != 2 {
				t.Errorf("message 100 failed %d times: the test shows nothing", failed)
			}
		})
		t.Run(db.name+", rabbitmq", func(t *testing.T) {
			t.Parallel()
			inOrder(t, db.make(t), newRabbit(t).options)
		})
	}
}

func inOrder(t *testing.T, s *site, change func(*cap.Options)) {
	t.Helper()
	var keyed, free journal
	bus := begun(t, made(t, s.store, nil, change, serving(
		subscribe.To("keyed", keyed.handle, subscribe.Group("handled"), subscribe.Ordered()),
		subscribe.To("free", free.handle, subscribe.Group("effects")))))
	const n = 200
	for i := range n {
		must(t, bus.Publish(t.Context(), cap.NoTx, "keyed", fmt.Sprint(i), cap.WithKey("k")))
	}
	must(t, bus.Publish(t.Context(), cap.NoTx, "free", "x"))
	free.wait(t, 1)
	keyed.wait(t, n)
	settled(t, s.store.DB(), window)
	keyed.mu.Lock()
	defer keyed.mu.Unlock()
	if len(keyed.seen) != n || !slices.IsSortedFunc(keyed.seen, byNumber) {
		t.Errorf("handled %d, want %d in order: %q", len(keyed.seen), n, keyed.seen)
	}
}

func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// TestC105OrderOfDeclarations, and case C090: whoever comes first, publisher or
// groups. What nobody takes waits for the first group; each group gets what is
// published after its first start, also while it is away, whoever was there
// before.
func TestC105OrderOfDeclarations(t *testing.T) {
	t.Parallel()
	for name, broker := range map[string]func(t *testing.T) func(*cap.Options){
		"memqueue": func(*testing.T) func(*cap.Options) { return over(memqueue.New(memqueue.Config{})) },
		"rabbitmq": func(t *testing.T) func(*cap.Options) { t.Helper(); return newRabbit(t).options },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := broker(t)
			publisher := begun(t, made(t, opened(t, file(t)), nil, change, serving(), hurried))
			must(t, publisher.Publish(t.Context(), cap.NoTx, "t", "before all"))
			var one, two journal
			consumer := func(group string, j *journal) *cap.Bus {
				return made(t, opened(t, file(t)), nil, change, serving(subscribe.To("t", j.handle, subscribe.Group(group))))
			}
			begun(t, consumer("handled", &one))
			one.waitFor(t, []string{"before all"})
			second := consumer("effects", &two)
			must(t, second.Start(t.Context()))
			must(t, publisher.Publish(t.Context(), cap.NoTx, "t", "to both"))
			one.waitFor(t, []string{"to both"})
			two.waitFor(t, []string{"to both"})
			must(t, second.Stop(context.WithoutCancel(t.Context())))
			must(t, publisher.Publish(t.Context(), cap.NoTx, "t", "while away"))
			one.waitFor(t, []string{"while away"})
			must(t, second.Start(t.Context()))
			two.waitFor(t, []string{"while away"})
			must(t, second.Stop(context.WithoutCancel(t.Context())))
			one.exactly(t, []string{"before all", "to both", "while away"})
			two.exactly(t, []string{"to both", "while away"})
		})
	}
}

// hurried looks soon again for what was unroutable.
func hurried(o *cap.Options) { o.FailedRetryInterval = 50 * time.Millisecond }
