package memqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
	"github.com/capbus/gocap/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Suite{
		Open: func(*testing.T) transport.Transport { return memqueue.New(memqueue.Config{}) },
		Cut: func(_ *testing.T, tr transport.Transport) {
			tr.(*memqueue.Queue).Disconnect()
			tr.(*memqueue.Queue).Reconnect()
		},
	}.Run(t)
}

func BenchmarkTransport(b *testing.B) {
	transporttest.Bench(b, func(*testing.B) transport.Transport { return memqueue.New(memqueue.Config{}) })
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

func message(topic, id string) *transport.Message {
	return &transport.Message{ID: id, Topic: topic, Headers: map[string]string{transport.HeaderID: id}, Body: []byte(id)}
}

// answer is what a Send returned, and when.
type answer struct {
	errs []error
	took time.Duration
}

func send(ctx context.Context, q *memqueue.Queue, msgs ...*transport.Message) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		began := time.Now()
		errs := q.Send(ctx, msgs)
		c <- answer{errs, time.Since(began)}
	}()
	synctest.Wait()
	return c
}

// want checks the errors of a Send and that it took exactly that long.
func (a answer) want(t *testing.T, took time.Duration, errs ...error) {
	t.Helper()
	if a.took != took {
		t.Errorf("send took %v, want %v", a.took, took)
	}
	if len(a.errs) != len(errs) {
		t.Fatalf("send returned %v, want %v", a.errs, errs)
	}
	for i := range errs {
		if !errors.Is(a.errs[i], errs[i]) {
			t.Errorf("message %d: got %v, want %v", i, a.errs[i], errs[i])
		}
	}
}

// wantUnknown checks for an error that is none of the contract's.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("got nil, want an unknown outcome")
	}
	for _, is := range []error{transport.ErrUnavailable, transport.ErrBusy, transport.ErrUnroutable, transport.ErrRejected} {
		if errors.Is(err, is) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	}
}

func pending(t *testing.T, c <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		t.Errorf("send returned %v already", a.errs)
	default:
	}
}

// consumer is one Receive whose deliveries wait in a channel.
type consumer struct {
	got  chan transport.Delivery
	stop context.CancelFunc
	done chan error
}

func receive(t *testing.T, q *memqueue.Queue, group string, topics ...string) *consumer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &consumer{got: make(chan transport.Delivery, 1000), stop: cancel, done: make(chan error, 1)}
	src := transport.Source{Group: group, Topics: topics, Window: 10}
	go func() {
		c.done <- q.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				c.got <- d
			}
		})
	}()
	synctest.Wait()
	return c
}

// end stops the consumer and returns what Receive returned.
func (c *consumer) end() error {
	c.stop()
	return <-c.done
}

// next returns a delivery that is there, or fails the test.
func (c *consumer) next(t *testing.T) transport.Delivery {
	t.Helper()
	synctest.Wait()
	select {
	case d := <-c.got:
		return d
	default:
		t.Fatal("nothing was delivered")
		return nil
	}
}

func (c *consumer) nothing(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case d := <-c.got:
		t.Errorf("message %q was delivered", d.Message().ID)
	default:
	}
}

func ack(t *testing.T, d transport.Delivery) {
	t.Helper()
	if err := d.Ack(); err != nil {
		t.Errorf("ack: %v", err)
	}
}
