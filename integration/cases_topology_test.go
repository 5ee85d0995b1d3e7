package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
)

// TestC078TopologyIsDeleted, and case C106: somebody deletes the queue, the
// exchange or the binding, or the broker has lost all of them. They come back by
// themselves, and what is published then arrives.
func TestC078TopologyIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	var j journal
	s := siteOnPostgres(t)
	bus := begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", j.handle)), hurried))
	queue := func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(r.queue("handled"), false, false, false)
		return err
	}
	exchange := func(ch *amqp091.Channel) error { return ch.ExchangeDelete(r.exchange, false, false) }
	var want []string
	for name, remove := range map[string]func(ch *amqp091.Channel) error{
		"queue": queue, "exchange": exchange,
		"binding": func(ch *amqp091.Channel) error { return ch.QueueUnbind(r.queue("handled"), "t", r.exchange, nil) },
		"all": func(ch *amqp091.Channel) error {
			if err := exchange(ch); err != nil {
				return err
			}
			return queue(ch)
		},
	} {
		id := "before: " + name
		must(t, bus.Publish(t.Context(), cap.NoTx, "t", id))
		want = append(want, id)
		j.wait(t, len(want)) // nothing is in the queue when it goes
		eventually(t, "it is acknowledged", func() bool { return r.ready(t, r.queue("handled")) == 0 })
		r.raw(t, func(ch *amqp091.Channel) { must(t, remove(ch)) })
		for i := range 10 {
			id := fmt.Sprint("after ", i, ": ", name)
			must(t, bus.Publish(t.Context(), cap.NoTx, "t", id))
			want = append(want, id)
		}
		j.wait(t, len(want))
	}
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
}

// TestC080OtherSettings: an exchange that is there as another type. It is an
// error that names it and both types; what is published meanwhile waits, and
// arrives when the exchange has been put right.
func TestC080OtherSettings(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"direct", "fanout"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRabbit(t)
			r.raw(t, func(ch *amqp091.Channel) {
				must(t, ch.ExchangeDeclare(r.exchange, kind, true, false, false, false, nil))
			})
			var j journal
			s := siteOnPostgres(t)
			bus := made(t, s.store, nil, r.options, serving(inHandled("t", j.handle)), hurried)
			err := bus.Start(t.Context())
			if err == nil {
				t.Cleanup(func() { must(t, bus.Stop(context.WithoutCancel(t.Context()))) })
			}
			for _, word := range []string{r.exchange, kind, "topic"} {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("start: %v, want %q in it", err, word)
				}
			}
			must(t, s.store.Migrate(t.Context()))
			want := publishAll(t, bus, "t", 0, 5)
			r.raw(t, func(ch *amqp091.Channel) { must(t, ch.ExchangeDelete(r.exchange, false, false)) })
			begun(t, bus)
			j.wait(t, len(want))
			settled(t, s.store.DB(), window)
			j.exactly(t, want)
		})
	}
}

// TestC084Prefetch: an instance whose handlers are slow takes as much as it can
// work on soon, and leaves the rest in the queue to others.
func TestC084Prefetch(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	const all = 3000
	var a, b atomic.Int64
	hold := make(chan struct{})
	s := siteOnPostgres(t)
	slow := func(n *atomic.Int64) func(context.Context, string) error {
		return func(ctx context.Context, _ string) error {
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
			n.Add(1)
			return nil
		}
	}
	one := begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", slow(&a)))))
	for i := range all / 10 {
		publishAll(t, one, "t", 10*i, 10*i+10)
	}
	eventually(t, "all are in the queue or taken", func() bool {
		return number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE status <> 2") == 0
	})
	taken := func() int { return all - r.ready(t, r.queue("handled")) }
	last, since := taken(), time.Now()
	eventually(t, "it takes no more", func() bool {
		if n := taken(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	t.Logf("%d of %d were taken", last, all)
	if last > all/2 {
		t.Errorf("%d of %d messages were taken by an instance that does not handle any", last, all)
	}
	two := r.second(t)
	begun(t, made(t, onMariaDB(t).store, nil, two.options, serving(inHandled("t", slow(&b)))))
	eventually(t, "the other takes some", func() bool { return taken() > last })
	close(hold)
	eventually(t, "all are handled", func() bool { return a.Load()+b.Load() == all })
	if b.Load() < all/4 {
		t.Errorf("the second instance handled %d of %d", b.Load(), all)
	}
}

// second is another process of the same service.
func (r *rabbit) second(t *testing.T) *rabbit {
	t.Helper()
	other := rabbitOf(r.url, r.version)
	t.Cleanup(func() { must(t, other.Close()) })
	return other
}

// TestC094OversizeOnRabbitMQ: a broker that closes the channel for a message that
// is larger than it allows gets all others; the large one ends failed at once, with the
// broker's reason.
func TestC094OversizeOnRabbitMQ(t *testing.T) {
	t.Parallel()
	r := rabbitAt(t, testenv.StartRabbitMQ(t, "max_message_size=65536").DSN)
	var j journal
	failed := make(chan cap.FailedInfo, 10)
	s := siteOnPostgres(t)
	bus := begun(t, made(t, s.store, nil, r.options, serving(inHandled("#", j.handle)), func(o *cap.Options) {
		o.FailedThresholdCallback = func(_ context.Context, info cap.FailedInfo) { failed <- info }
	}))
	big := strings.Repeat("x", 100_000)
	var want []string
	must(t, bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
		for i := range 100 {
			if i == 50 {
				if err := bus.Publish(ctx, tx, "t", big); err != nil {
					return err
				}
			}
			want = append(want, fmt.Sprint(i))
			if err := bus.Publish(ctx, tx, []string{"t", "other"}[i%2], fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	j.wait(t, len(want))
	select {
	case info := <-failed:
		if info.Attempts != 1 || !strings.Contains(info.LastError, "65536") {
			t.Errorf("after %d attempts: %s", info.Attempts, info.LastError)
		}
	case <-time.After(patience):
		t.Fatal("the large message does not end")
	}
	settled(t, s.store.DB(), window)
	j.exactly(t, want)
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE retries > 0"); n != 1 || len(failed) > 0 {
		t.Errorf("%d messages were charged with an attempt, want the large one; %d further callbacks", n, len(failed))
	}
}
