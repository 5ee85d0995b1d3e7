package wmadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

// batch is what one call of Publish gets: messages of one topic, by their place in
// the Send.
type batch struct {
	topic  string
	places []int
}

// sending is one Send.
type sending struct {
	t    *Transport
	msgs []*transport.Message
	errs []error
	from time.Time
}

// publishError is what a call of Publish returned, or how it panicked.
type publishError struct{ err error }

func (e *publishError) Error() string { return "wmadapter: Publish: " + e.err.Error() }
func (e *publishError) Unwrap() error { return e.err }

// Send publishes messages, those of one topic together, and waits until Publish
// has returned, at most Config.SendTimeout. When a call fails, its halves are
// published again, down to the message: some of them may then be there twice.
func (t *Transport) Send(ctx context.Context, msgs []*transport.Message) []error {
	s := &sending{t: t, msgs: msgs, errs: make([]error, len(msgs)), from: time.Now()}
	if err := t.cannotSend(); err != nil {
		for i := range s.errs {
			s.errs[i] = err
		}
		return s.errs
	}
	wait, cancel := context.WithTimeoutCause(ctx, t.cfg.SendTimeout, errNotPublished)
	defer cancel()
	batches := s.batches()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(t.cfg.Publishers, len(batches)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				s.publish(wait, batches[i])
			}
		})
	}
	workers.Wait()
	for i, err := range s.errs {
		s.errs[i] = s.outcome(ctx, err)
	}
	return s.errs
}

func (t *Transport) cannotSend() error {
	switch {
	case t.closed.Load():
		return errClosed
	case t.cfg.Publisher == nil:
		return unavailable(errors.New("Config.Publisher is not set"))
	}
	return nil
}

// batches answers messages that cannot be sent, and puts the others together.
func (s *sending) batches() []batch {
	var all []batch
	open := make(map[string]int) // topic to its last batch
	for i, m := range s.msgs {
		if err := s.t.checkMessage(m); err != nil {
			s.errs[i] = refused(err)
			continue
		}
		n, there := open[m.Topic]
		if !there || len(all[n].places) == s.t.cfg.BatchSize {
			n = len(all)
			open[m.Topic] = n
			all = append(all, batch{topic: m.Topic})
		}
		all[n].places = append(all[n].places, i)
	}
	return all
}

func (t *Transport) checkMessage(m *transport.Message) error {
	if err := transport.CheckTopic(m.Topic); err != nil {
		return err
	}
	if most := t.cfg.MaxTopic; most > 0 && len(m.Topic) > most {
		return fmt.Errorf("the topic has %d bytes; Config.MaxTopic allows %d", len(m.Topic), most)
	}
	if most := t.cfg.MaxMessage; most > 0 && len(m.Body) > most {
		return fmt.Errorf("the body has %d bytes; Config.MaxMessage allows %d", len(m.Body), most)
	}
	return nil
}

// publish publishes a batch, or its halves when Publish returns an error: nobody
// says which message was at fault.
func (s *sending) publish(ctx context.Context, b batch) {
	err := s.publishOnce(ctx, b)
	var failed *publishError
	switch {
	case err == nil:
		s.t.stored.Store(int64(time.Since(s.t.born)))
	case errors.As(err, &failed) && len(b.places) > 1:
		half := len(b.places) / 2
		s.publish(ctx, batch{b.topic, b.places[:half]})
		s.publish(ctx, batch{b.topic, b.places[half:]})
	default:
		for _, i := range b.places {
			s.errs[i] = err
		}
	}
}

// publishOnce calls Publish, unless the time is over, in a goroutine that keeps its
// place until it ends.
func (s *sending) publishOnce(ctx context.Context, b batch) error {
	if ctx.Err() != nil {
		return unavailable(fmt.Errorf("not published, others took the time of the Send: %w", context.Cause(ctx)))
	}
	select {
	case s.t.slots <- struct{}{}:
	case <-ctx.Done():
		return unavailable(fmt.Errorf("not published, all %d calls of Publish are under way: %w", s.t.cfg.Publishers, context.Cause(ctx)))
	}
	wms := make([]*message.Message, len(b.places))
	for k, i := range b.places {
		wms[k] = outgoing(s.msgs[i])
		// Values for tracers; no end that could come in the middle.
		wms[k].SetContext(context.WithoutCancel(ctx))
	}
	done := make(chan error, 1)
	go guarded(func() error { return s.t.cfg.Publisher.Publish(s.t.cfg.TopicName(b.topic), wms...) }, func(err error) {
		<-s.t.slots
		done <- err
	})
	select {
	case err := <-done:
		if err != nil {
			return &publishError{err}
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ofContract reports whether an error says what it means: transports of this module
// are Publishers, too.
func ofContract(err error) bool {
	for _, is := range []error{transport.ErrRejected, transport.ErrUnroutable, transport.ErrUnavailable, transport.ErrBusy} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// outcome gives an error its meaning. Publish does not say whether the broker is
// away or will not have this message. If it has taken another one since the Send
// began, it is not away.
func (s *sending) outcome(ctx context.Context, err error) error {
	var failed *publishError
	var panicked *panicError
	switch {
	case err == nil, ofContract(err):
		return err
	case !errors.As(err, &failed):
		if ctx.Err() != nil {
			return unavailable(err)
		}
		return err
	case errors.As(err, &panicked):
		return err
	case s.t.cfg.Outcome != nil:
		if meant := s.t.cfg.Outcome(failed.err); meant != nil {
			return fmt.Errorf("wmadapter: Publish: %w", meant)
		}
		return err
	case s.t.born.Add(time.Duration(s.t.stored.Load())).After(s.from):
		return err
	}
	return unavailable(err)
}
