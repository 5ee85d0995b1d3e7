package wmadapter_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/wmadapter"
)

// foreign is a Publisher and Subscriber that does what a test says.
type foreign struct {
	publish   func(topic string, wms ...*message.Message) error
	subscribe func(ctx context.Context, topic string) (<-chan *message.Message, error)
	close     func() error
}

func (f *foreign) Publish(topic string, wms ...*message.Message) error {
	return f.publish(topic, wms...)
}

func (f *foreign) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return f.subscribe(ctx, topic)
}

func (f *foreign) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

func over(f *foreign, more ...func(*wmadapter.Config)) *wmadapter.Transport {
	cfg := wmadapter.Config{Publisher: f, Subscriber: func(string) (message.Subscriber, error) { return f, nil }}
	for _, set := range more {
		set(&cfg)
	}
	return wmadapter.New(cfg)
}

func msg(topic, body string) *transport.Message {
	return &transport.Message{ID: body, Topic: topic, Body: []byte(body)}
}

func unknown(err error) bool {
	for _, is := range []error{transport.ErrUnavailable, transport.ErrBusy, transport.ErrUnroutable, transport.ErrRejected} {
		if errors.Is(err, is) {
			return false
		}
	}
	return err != nil
}

// One message that Publish does not like, among others: it alone fails, and
// because others got through, it is not the broker that is away.
func TestOneBadMessageFailsAlone(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func() error{
		"error": func() error { return errors.New("no") },
		"panic": func() error { panic("no") },
		"exit":  func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := over(&foreign{publish: func(_ string, wms ...*message.Message) error {
				for _, wm := range wms {
					if string(wm.Payload) == "bad" {
						return fault()
					}
				}
				return nil
			}})
			errs := tr.Send(t.Context(), []*transport.Message{msg("t", "1"), msg("t", "2"), msg("t", "bad"), msg("u", "3")})
			if errs[0] != nil || errs[1] != nil || errs[3] != nil || !unknown(errs[2]) {
				t.Errorf("got %v", errs)
			}
		})
	}
}

func TestErrorsOfPublish(t *testing.T) {
	t.Parallel()
	failed := errors.New("no")
	tr := over(&foreign{publish: func(string, ...*message.Message) error { return failed }})
	if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !errors.Is(err, transport.ErrUnavailable) || !errors.Is(err, failed) {
		t.Errorf("when nothing gets through: %v, want ErrUnavailable", err)
	}
	tr = over(&foreign{publish: func(string, ...*message.Message) error { return failed }}, func(c *wmadapter.Config) {
		c.Outcome = func(error) error { return transport.ErrUnroutable }
		c.Routing = true
	})
	if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !errors.Is(err, transport.ErrUnroutable) {
		t.Errorf("with an Outcome: %v", err)
	}
	tr = over(&foreign{publish: func(string, ...*message.Message) error { return transport.ErrBusy }})
	if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !errors.Is(err, transport.ErrBusy) {
		t.Errorf("an error of the contract: %v", err)
	}
	tr = over(&foreign{publish: func(string, ...*message.Message) error { return nil }}, func(c *wmadapter.Config) { c.MaxTopic, c.MaxMessage = 5, 5 })
	errs := tr.Send(t.Context(), []*transport.Message{msg("t", "123456"), msg("123456", ""), msg("t", "1")})
	if !errors.Is(errs[0], transport.ErrPermanent) || !errors.Is(errs[1], transport.ErrPermanent) || errs[2] != nil {
		t.Errorf("limits: %v", errs)
	}
}

// A Publish that hangs is bounded in time and in number, and so is Close.
func TestWhatHangsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var calls atomic.Int32
		hang := func() error { calls.Add(1); <-free; return nil }
		tr := over(&foreign{
			publish:   func(string, ...*message.Message) error { return hang() },
			subscribe: func(context.Context, string) (<-chan *message.Message, error) { return nil, hang() },
			close:     hang,
		}, func(c *wmadapter.Config) { c.Publishers = 2 })
		began := time.Now()
		for range 2 {
			if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !unknown(err) {
				t.Errorf("a Publish that hangs: %v, want an unknown outcome", err)
			}
		}
		if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("all places are taken: %v, want ErrUnavailable", err)
		}
		if took := time.Since(began); took != 90*time.Second || calls.Load() != 2 {
			t.Errorf("three Sends took %v and %d calls", took, calls.Load())
		}
		err := tr.Receive(t.Context(), transport.Source{Group: "g", Topics: []string{"t"}, Window: 1}, nil)
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("a Subscribe that hangs: %v", err)
		}
		if err := tr.Close(); err == nil || !strings.Contains(err.Error(), "did not return in time") {
			t.Errorf("a Close that hangs: %v", err)
		}
		if took := time.Since(began); took != 90*time.Second+30*time.Second+5*time.Second+5*time.Second {
			t.Errorf("all took %v", took)
		}
		if err := tr.Send(t.Context(), []*transport.Message{msg("t", "1")})[0]; !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
		close(free)
	})
}

// A subscriber that is made too late is closed.
func TestALateSubscriberIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		late := &foreign{close: func() error { closed.Add(1); return nil }}
		tr := wmadapter.New(wmadapter.Config{Subscriber: func(string) (message.Subscriber, error) {
			<-time.After(time.Minute)
			return late, nil
		}})
		err := tr.Receive(t.Context(), transport.Source{Group: "g", Topics: []string{"t"}, Window: 1}, nil)
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if closed.Load() != 1 {
			t.Errorf("it was closed %d times", closed.Load())
		}
	})
}

// Phantoms are acked and dropped; a message without an id that has a body is none.
func TestPhantomsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *message.Message, 3)
		phantom, other := message.NewMessage("", nil), message.NewMessage("", message.Payload("x"))
		in <- phantom
		in <- nil
		in <- other
		got, _ := receiveFrom(t, in)
		synctest.Wait()
		if d := <-got; string(d.Message().Body) != "x" || d.Message().Topic != "t" {
			t.Errorf("got %+v", d.Message())
		}
		select {
		case <-phantom.Acked():
		default:
			t.Error("the phantom is not acked; it would block its subscription")
		}
	})
}

// A nack stays here: the subscriber sees none, and the message comes again.
func TestNackIsNotPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *message.Message, 1)
		wm := message.NewMessage("1", nil)
		in <- wm
		got, _ := receiveFrom(t, in)
		began := time.Now()
		check(t, (<-got).Nack(time.Minute))
		check(t, (<-got).Ack())
		if time.Since(began) != time.Minute {
			t.Errorf("it came again after %v", time.Since(began))
		}
		select {
		case <-wm.Nacked():
			t.Error("the subscriber saw a nack")
		case <-wm.Acked():
		}
	})
}

// What a subscriber takes back and gives again stays one delivery, and an ack of
// meanwhile counts.
func TestTakenBackAndGivenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *message.Message)
		give := func() (*message.Message, context.CancelFunc) {
			wm := message.NewMessage("1", nil)
			ctx, cancel := context.WithCancel(t.Context())
			wm.SetContext(ctx)
			in <- wm
			synctest.Wait()
			return wm, cancel
		}
		got, _ := receiveFrom(t, in)
		_, takeBack := give()
		d := <-got
		takeBack()
		_, takeBack = give()
		takeBack()
		synctest.Wait()
		check(t, d.Ack())
		wm, end := give()
		select {
		case <-wm.Acked():
		default:
			t.Error("the ack is forgotten")
		}
		end()
		select {
		case <-got:
			t.Error("it was delivered again")
		default:
		}
	})
}

func TestASubscriptionThatEndsIsALostSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *message.Message)
		_, done := receiveFrom(t, in)
		close(in)
		if err := <-done; !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSourcesThatCannotBe(t *testing.T) {
	t.Parallel()
	tr := over(&foreign{})
	for saying, src := range map[string]transport.Source{
		"without a group": {Topics: []string{"t"}, Window: 1},
		"has a wildcard":  {Group: "g", Topics: []string{"a.*"}, Window: 1},
		"window is 0":     {Group: "g", Topics: []string{"t"}},
		"ordered group":   {Group: "g", Topics: []string{"t"}, Window: 1, Ordered: true},
		"broker retry":    {Group: "g", Topics: []string{"t"}, Window: 1, Retry: &transport.BrokerRetry{}},
	} {
		if err := tr.Receive(t.Context(), src, nil); err == nil || !strings.Contains(err.Error(), saying) || errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s: %v", saying, err)
		}
	}
}

// receiveFrom receives from one subscription until the test ends.
func receiveFrom(t *testing.T, in <-chan *message.Message) (<-chan transport.Delivery, <-chan error) {
	t.Helper()
	tr := over(&foreign{subscribe: func(context.Context, string) (<-chan *message.Message, error) { return in, nil }})
	got, done := make(chan transport.Delivery, 10), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		done <- tr.Receive(ctx, transport.Source{Group: "g", Topics: []string{"t"}, Window: 5}, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				got <- d
			}
		})
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return got, done
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
