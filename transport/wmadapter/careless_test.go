package wmadapter_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/wmadapter"
)

// A function of the user's that returns neither a subscriber nor an error must not
// end the process when the receiver does.
func TestNoSubscriberAndNoError(t *testing.T) {
	t.Parallel()
	tr := wmadapter.New(wmadapter.Config{Subscriber: wmadapter.PerTopic(func(string, string) (message.Subscriber, error) {
		return nil, nil //nolint:nilnil // the careless user
	})})
	err := tr.Receive(t.Context(), transport.Source{Group: "g", Topics: []string{"t"}, Window: 1}, nil)
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "returned nil") {
		t.Errorf("got %v", err)
	}
}

// A subscription without a channel would be silent for ever.
func TestNoChannelAndNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, done := receiveFrom(t, nil)
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "no channel") {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("Receive goes on, and nothing can come")
		}
	})
}

// A subscriber need not end the context of a message when it has dealt with the ack:
// what was acked must not stay in memory for that.
func TestContextsThatDoNotEndKeepNothing(t *testing.T) {
	t.Parallel()
	const n, size = 400, 256 << 10
	in := make(chan *message.Message)
	got, _ := receiveFrom(t, in)
	life, end := context.WithCancel(t.Context())
	defer end()
	before := heap()
	for range n {
		wm := message.NewMessage("1", make([]byte, size))
		wm.SetContext(life)
		in <- wm
		check(t, (<-got).Ack())
	}
	if kept := heap() - before; kept > n*size/2 {
		t.Errorf("%d MiB are kept of %d that were acked", kept>>20, n*size>>20)
	}
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc) //nolint:gosec // it is no such size
}

// In an outage that a Publisher notices slowly, the time of a Send is over before each
// half has had its call: those cost no attempt, or an hour of it would end them all.
func TestSlowFailuresCostNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := over(&foreign{publish: func(string, ...*message.Message) error {
			<-time.After(700 * time.Millisecond)
			return errors.New("connection refused")
		}})
		attempts := 0
		for _, err := range tr.Send(t.Context(), many("t", 100)) {
			if !errors.Is(err, transport.ErrUnavailable) {
				attempts++
			}
		}
		if attempts > 13 { // what was under way when the time was over
			t.Errorf("%d of 100 messages count as attempts", attempts)
		}
		<-time.After(time.Second) // for the last call to return
	})
}

// What has not had its turn when the Send is over is not published any more.
func TestAfterTheEndNothingIsPublished(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	tr := over(&foreign{publish: func(string, ...*message.Message) error { calls.Add(1); return nil }},
		func(c *wmadapter.Config) { c.BatchSize = 1 })
	ctx, end := context.WithCancel(t.Context())
	end()
	for _, err := range tr.Send(ctx, many("t", 40)) {
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls of Publish", calls.Load())
	}
}

// A UUID says nothing where there is an id: a foreign program may use one for all.
func TestOneUUIDForManyMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *message.Message)
		give := func(id string) context.CancelFunc {
			wm := message.NewMessage("1", nil)
			wm.Metadata.Set(transport.HeaderID, id)
			ctx, cancel := context.WithCancel(t.Context())
			wm.SetContext(ctx)
			in <- wm
			synctest.Wait()
			return cancel
		}
		got, _ := receiveFrom(t, in)
		takeBack := give("a")
		d := <-got
		takeBack()
		check(t, d.Ack())
		defer give("b")()
		select {
		case d := <-got:
			check(t, d.Ack())
		default:
			t.Error("another message counts as the one that was acked")
		}
	})
}

func many(topic string, n int) []*transport.Message {
	msgs := make([]*transport.Message, n)
	for i := range msgs {
		msgs[i] = msg(topic, strconv.Itoa(i))
	}
	return msgs
}
