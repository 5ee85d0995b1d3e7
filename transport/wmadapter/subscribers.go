package wmadapter

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Shared is a Config.Subscriber for those that know no groups: every Receive gets
// sub, and does not close it.
func Shared(sub message.Subscriber) func(group string) (message.Subscriber, error) {
	return func(string) (message.Subscriber, error) { return shared{sub}, nil }
}

type shared struct{ message.Subscriber }

func (shared) Close() error { return nil }

// PerTopic is a Config.Subscriber for those that need one for each topic of a
// group, because something that must be the topic's own, such as the name of a
// durable consumer, stands in the subscriber's configuration. Name is what
// Config.TopicName makes of the topic.
func PerTopic(open func(group, name string) (message.Subscriber, error)) func(group string) (message.Subscriber, error) {
	return func(group string) (message.Subscriber, error) { return &perTopic{group: group, open: open}, nil }
}

type perTopic struct {
	group string
	open  func(group, name string) (message.Subscriber, error)

	mu     sync.Mutex
	subs   []message.Subscriber
	closed bool
}

// Subscribe opens a subscriber and subscribes with it.
func (p *perTopic) Subscribe(ctx context.Context, name string) (<-chan *message.Message, error) {
	sub, err := p.open(p.group, name)
	if err != nil {
		return nil, err
	}
	if sub == nil {
		return nil, errors.New("the function given to PerTopic returned nil")
	}
	p.mu.Lock()
	closed := p.closed
	p.subs = append(p.subs, sub)
	p.mu.Unlock()
	if closed {
		return nil, errors.Join(errEnded, sub.Close())
	}
	return sub.Subscribe(ctx, name)
}

// Close closes all subscribers at once.
func (p *perTopic) Close() error {
	p.mu.Lock()
	p.closed = true
	subs := p.subs
	p.mu.Unlock()
	errs := make([]error, len(subs))
	var all sync.WaitGroup
	for i, sub := range subs {
		all.Go(func() { guarded(func() error { return sub.Close() }, func(err error) { errs[i] = err }) })
	}
	all.Wait()
	return errors.Join(errs...)
}
