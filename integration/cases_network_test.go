package integration

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/subscribe"
)

// mutable is a connection to a broker that a test can make mute.
type mutable struct {
	net.Conn

	of *rabbit
}

func (c *mutable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.mu.Lock()
	mute := c.of.mute
	c.of.mu.Unlock()
	if mute != nil && err == nil {
		<-mute
	}
	return n, err
}

// silence lets nothing through that the broker says, until speak is called.
func (r *rabbit) silence() (speak func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mute := make(chan struct{})
	r.mute = mute
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.mute == mute {
			r.mute = nil
			close(mute)
		}
	}
}

// ready counts the messages of a queue that no consumer has; -1: it is not there.
func (r *rabbit) ready(t *testing.T, queue string) (n int) {
	t.Helper()
	r.raw(t, func(ch *amqp091.Channel) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if n = q.Messages; err != nil {
			n = -1
		}
	})
	return n
}

// inHandled is a subscription of a group whose queue is cleared away.
func inHandled[T any](topic string, fn func(context.Context, T) error, opts ...subscribe.Option) subscribe.Subscription {
	return subscribe.To(topic, fn, append([]subscribe.Option{subscribe.Group("handled")}, opts...)...)
}

// publishAll publishes messages, ten in a transaction, and returns them.
func publishAll(t *testing.T, bus *cap.Bus, topic string, from, to int) (ids []string) {
	t.Helper()
	for n := from; n < to; n += 10 {
		must(t, bus.InTx(t.Context(), func(ctx context.Context, tx cap.Tx) error {
			for i := n; i < min(n+10, to); i++ {
				ids = append(ids, fmt.Sprint(i))
				if err := bus.Publish(ctx, tx, topic, fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return ids
}

// TestC022CutWhileSending: connections that break in the middle of whatever is
// on the wire, and a broker that is away for a while, break no later send.
func TestC022CutWhileSending(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			r := newRabbit(t)
			var j journal
			s := db.make(t)
			bus := begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", j.handle))))
			var want []string
			for round := range 6 {
				want = append(want, publishAll(t, bus, "t", 100*round, 100*round+100)...)
				<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond) //nolint:gosec // the moment of the cut
				r.network(round%3 != 2)
			}
			<-time.After(time.Second) // how long the last outage lasts
			r.network(true)
			begun := time.Now()
			j.wait(t, len(want))
			settled(t, s.store.DB(), 4*window)
			t.Logf("all was done %s after the outage", time.Since(begun))
			j.exactly(t, want)
			if bad := column(t, s.store.DB(), "SELECT last_error FROM cap_published WHERE retries > 0"); len(bad) > 0 {
				t.Errorf("an outage was counted as an attempt of %d messages: %q", len(bad), bad[0])
			}
		})
	}
}

// TestC073SentMeansConfirmed: while the broker has messages and its confirms are
// on their way, no message counts as sent.
func TestC073SentMeansConfirmed(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	other := r.queue("other") // shows what has reached the broker
	t.Cleanup(func() {
		r.raw(t, func(ch *amqp091.Channel) { _, err := ch.QueueDelete(other, false, false, false); must(t, err) })
	})
	var j journal
	s := siteOnPostgres(t)
	bus := begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", j.handle))))
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "first"))
	j.wait(t, 1)
	settled(t, s.store.DB(), window)
	r.raw(t, func(ch *amqp091.Channel) {
		_, err := ch.QueueDeclare(other, true, false, false, false, nil)
		must(t, err)
		must(t, ch.QueueBind(other, "t", r.exchange, false, nil))
	})
	speak := r.silence()
	defer speak()
	want := publishAll(t, bus, "t", 0, 50)
	eventually(t, "the broker has some", func() bool { return r.ready(t, other) > 0 })
	if n := number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE status = 2"); n != 1 {
		t.Errorf("%d messages count as sent without a confirm", n-1)
	}
	speak()
	j.wait(t, len(want)+1)
	settled(t, s.store.DB(), window)
	j.exactly(t, append(want, "first"))
}

// TestC073BrokerRestarts: a broker that restarts in the middle of bursts loses
// nothing of what counts as sent.
func TestC073BrokerRestarts(t *testing.T) {
	t.Parallel()
	broker := testenv.StartRabbitMQ(t)
	type side struct {
		*site

		bus  *cap.Bus
		j    journal
		want []string
	}
	var sides []*side
	for _, database := range []func(testing.TB) *site{siteOnPostgres, onMariaDB} {
		s := &side{site: database(t)}
		r := rabbitAt(t, broker.DSN)
		s.bus = begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", s.j.handle))))
		sides = append(sides, s)
	}
	for round := range 3 {
		for _, s := range sides {
			s.want = append(s.want, publishAll(t, s.bus, "t", 300*round, 300*round+300)...)
		}
		must(t, broker.Restart(t.Context()))
	}
	for _, s := range sides {
		s.j.wait(t, len(s.want))
		settled(t, s.store.DB(), 4*window)
		s.j.exactly(t, s.want)
	}
}

// TestC077BrokerComesLater: a service that starts before its broker says so, and
// sends and receives by itself when the broker is there.
func TestC077BrokerComesLater(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			r := newRabbit(t)
			r.network(false)
			var j journal
			s := db.make(t)
			bus := begun(t, made(t, s.store, nil, r.options, serving(inHandled("t", j.handle))))
			want := publishAll(t, bus, "t", 0, 10)
			eventually(t, "it says what is wrong", func() bool {
				h := bus.Health(t.Context())
				return !h.OK && h.Alive && h.Ready && len(h.Groups) == 1 && h.Groups[0].LastError != "" && !h.BrokerAway.IsZero()
			})
			r.network(true)
			j.wait(t, len(want))
			settled(t, s.store.DB(), window)
			j.exactly(t, want)
			eventually(t, "all is well", func() bool { return bus.Health(t.Context()).OK })
		})
	}
}

// TestC085StopWhileTheBrokerIsMute: sends that get no answer end with the stop,
// in time, and what was not confirmed is sent by the next start.
func TestC085StopWhileTheBrokerIsMute(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	var j journal
	s := siteOnPostgres(t)
	another := func() *cap.Bus {
		return made(t, s.store, nil, r.options, serving(inHandled("t", j.handle)), func(o *cap.Options) { o.StopTimeout = 5 * time.Second })
	}
	bus := another()
	must(t, bus.Start(t.Context()))
	must(t, bus.Publish(t.Context(), cap.NoTx, "t", "first"))
	j.wait(t, 1)
	speak := r.silence()
	defer speak()
	want := append(publishAll(t, bus, "t", 0, 200), "first")
	eventually(t, "they wait for an answer", func() bool { return bus.Health(t.Context()).Sending.InHand > 0 })
	begun := time.Now()
	if err := bus.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Log(err)
	}
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("the stop took %s", d)
	}
	speak()
	r.network(true) // cuts what hangs
	next := another()
	must(t, next.Start(t.Context()))
	j.wait(t, len(want))
	settled(t, s.store.DB(), 4*window)
	must(t, next.Stop(t.Context()))
	j.exactly(t, want)
}

// TestC181Connections: a process has two connections to its broker, whatever it
// subscribes to and however much it sends, and none when it has stopped.
func TestC181Connections(t *testing.T) {
	t.Parallel()
	r := newRabbit(t)
	var handled atomic.Int64
	var subs []subscribe.Subscription
	for i := range 50 {
		for _, group := range []string{"handled", "effects"} {
			subs = append(subs, subscribe.To(fmt.Sprint("t.", i), func(context.Context, string) error {
				handled.Add(1)
				return nil
			}, subscribe.Group(group)))
		}
	}
	s := siteOnPostgres(t)
	for round := range 3 {
		bus := made(t, s.store, nil, r.options, serving(subs...))
		must(t, bus.Start(t.Context()))
		crowd(200, 200, func(i int) {
			if err := bus.Publish(t.Context(), cap.NoTx, fmt.Sprint("t.", i%50), "x"); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "all are handled by both groups", func() bool { return handled.Load() == int64(400*(round+1)) })
		must(t, bus.Stop(t.Context()))
		r.mu.Lock()
		if most := 2 * (round + 1); r.dials > most {
			t.Errorf("%d connections were made in %d starts, want at most %d", r.dials, round+1, most)
		}
		r.mu.Unlock()
	}
}

// TestC104ManyStartTogether: instances that start at once on an empty broker, and
// come and go, all receive; nothing is lost, and nobody reports a failure.
func TestC104ManyStartTogether(t *testing.T) {
	t.Parallel()
	first := newRabbit(t)
	var log lines
	var j journal
	s := siteOnPostgres(t)
	must(t, s.store.Migrate(t.Context()))
	const instances = 8
	var want []string
	for round := range 3 {
		buses := make([]*cap.Bus, instances)
		crowd(instances, instances, func(i int) {
			r := first.second(t)
			buses[i] = made(t, s.store, nil, r.options, serving(inHandled("t", j.handle)), logTo(&log, slog.LevelError))
			if err := buses[i].Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for _, bus := range buses {
			for i := range 5 {
				id := fmt.Sprint(round, "-", len(want), "-", i)
				want = append(want, id)
				must(t, bus.Publish(t.Context(), cap.NoTx, "t", id))
			}
			eventually(t, "it receives", func() bool {
				h := bus.Health(t.Context())
				return len(h.Groups) == 1 && h.Groups[0].Receivers == 1
			})
		}
		crowd(instances, instances, func(i int) {
			if err := buses[i].Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	begun(t, made(t, s.store, nil, first.options, serving(inHandled("t", j.handle))))
	j.wait(t, len(want))
	settled(t, s.store.DB(), 4*window)
	j.exactly(t, want)
	if text := log.String(); text != "" {
		t.Errorf("somebody reports:\n%s", strings.TrimSpace(text))
	}
}
