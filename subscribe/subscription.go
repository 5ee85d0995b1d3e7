package subscribe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/capbus/gocap/transport"
)

// Subscription is a handler for a topic, with its settings. It is a value: make
// it with To or Tagged, and give it to a Registry or to Options.Subscriptions.
type Subscription struct {
	topic, group, name string
	build              func(transport.Codec) Handler
	where              string // file:line of the registration
	concurrency        int
	timeout            time.Duration
	retryCount         int
	retryInterval      time.Duration
	backoff            func(attempt int) time.Duration
	middleware         []Middleware
	codec              transport.Codec // nil: the bus's
	ordered            bool
	replies            bool
	retry              *transport.BrokerRetry // nil: the group has an inbox
	errs               []error                // of options
}

// To returns a subscription of fn to a topic, or to a pattern with the wildcards
// of transport.Match. The body is decoded into T by the codec; with
// T = *transport.Message the handler gets the message itself.
func To[T any](topic string, fn func(context.Context, T) error, opts ...Option) Subscription {
	s := Subscription{topic: topic, where: callSite()}
	if fn == nil {
		s.errs = append(s.errs, errors.New("the handler is nil"))
	}
	s.build = func(codec transport.Codec) Handler {
		return HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			v, err := decode[T](codec, m)
			if err != nil {
				return err
			}
			return fn(ctx, v)
		})
	}
	for _, opt := range opts {
		if opt == nil {
			s.errs = append(s.errs, errors.New("an option is nil"))
			continue
		}
		opt(&s)
	}
	return s
}

// Option is a setting of a subscription. A bad value is reported when the
// subscription is added.
type Option func(*Subscription)

// Group sets the group: every group gets its own copy of a message, and the
// instances of a group compete for it. Defaults to Options.DefaultGroupName.
func Group(name string) Option {
	return func(s *Subscription) {
		s.check(name != "", "Group: the name is empty")
		s.group = name
	}
}

// Name names the subscription within its group. It is stored with each message,
// so it must not change while messages wait. Defaults to the topic.
func Name(name string) Option {
	return func(s *Subscription) {
		s.check(name != "", "Name: the name is empty")
		s.name = name
	}
}

// Concurrency lets at most n runs of this handler be under way at once on an
// instance, and raises the workers of the group when it is larger. Defaults to
// Options.Concurrency.
func Concurrency(n int) Option {
	return func(s *Subscription) {
		s.check(n > 0, fmt.Sprintf("Concurrency: %d is not at least 1", n))
		s.concurrency = n
	}
}

// Timeout ends the context of a run after d; the attempt has failed unless the
// handler returns nil. Defaults to Options.HandlerTimeout.
func Timeout(d time.Duration) Option {
	return func(s *Subscription) {
		s.check(d > 0, fmt.Sprintf("Timeout: %s is not positive", d))
		s.timeout = d
	}
}

// FailedRetryCount is the number of attempts in all; 1 means no retry. Defaults
// to Options.FailedRetryCount.
func FailedRetryCount(n int) Option {
	return func(s *Subscription) {
		s.check(n > 0, fmt.Sprintf("FailedRetryCount: %d is not at least 1", n))
		s.retryCount = n
	}
}

// FailedRetryInterval is the wait between later attempts. Defaults to
// Options.FailedRetryInterval.
func FailedRetryInterval(d time.Duration) Option {
	return func(s *Subscription) {
		s.check(d > 0, fmt.Sprintf("FailedRetryInterval: %s is not positive", d))
		s.retryInterval = d
	}
}

// RetryBackoff returns the wait after each failed attempt, the first ones too;
// attempt counts from 1. Defaults to Options.RetryBackoff.
func RetryBackoff(f func(attempt int) time.Duration) Option {
	return func(s *Subscription) {
		s.check(f != nil, "RetryBackoff: the function is nil")
		s.backoff = f
	}
}

// Ordered lets messages with a key (cap.WithKey) be handled in their order: one
// after another of each key, those of different keys at once. A message that
// fails holds up those behind it with its key until it has succeeded, or failed
// for good. Messages without a key have no order.
//
// The whole group then has one receiver at a time over all instances, and that
// instance runs the handlers of what it receives. The transport must be able to
// (Traits.SingleActive), else the bus does not start.
func Ordered() Option { return func(s *Subscription) { s.ordered = true } }

// Codec decodes bodies for this subscription, such as transport.Bytes. Defaults
// to Options.Codec.
func Codec(c transport.Codec) Option {
	return func(s *Subscription) {
		s.check(c != nil, "Codec: the codec is nil")
		s.codec = c
	}
}

// With adds middleware, inside of Options.Middleware; the first given is the
// outermost.
func With(mw ...Middleware) Option {
	return func(s *Subscription) {
		for _, m := range mw {
			s.check(m != nil, "With: a middleware is nil")
		}
		s.middleware = append(s.middleware[:len(s.middleware):len(s.middleware)], mw...)
	}
}

func (s *Subscription) check(ok bool, problem string) {
	if !ok {
		s.errs = append(s.errs, errors.New(problem))
	}
}

// Validate returns every problem of the subscription, joined.
func (s Subscription) Validate() error {
	errs := append([]error(nil), s.errs...)
	if s.build == nil {
		errs = append(errs, errors.New("the subscription is the zero value; make it with subscribe.To"))
	} else if err := transport.CheckPattern(s.topic); err != nil {
		errs = append(errs, err)
	}
	if err := s.checkRetry(); err != nil {
		errs = append(errs, err)
	}
	for _, n := range []struct{ what, name string }{{"group", s.group}, {"name", s.name}} {
		if len(n.name) > transport.MaxTopicBytes {
			errs = append(errs, fmt.Errorf("%s has %d bytes; at most %d are allowed", n.what, len(n.name), transport.MaxTopicBytes))
		}
		if strings.ToValidUTF8(n.name, "") != n.name || strings.ContainsRune(n.name, 0) {
			errs = append(errs, fmt.Errorf("%s %q is not valid UTF-8 without NUL", n.what, n.name))
		}
	}
	if strings.ContainsFunc(s.group, unicode.IsControl) { // RabbitMQ takes a queue of another name for it
		errs = append(errs, fmt.Errorf("group %q has a control character; leave it out", s.group))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("subscription %s: %w", s, errors.Join(errs...))
}

// String names the subscription and where it was made.
func (s Subscription) String() string {
	text := fmt.Sprintf("%q", s.topic)
	if s.group != "" {
		text += fmt.Sprintf(" of group %q", s.group)
	}
	if s.name != "" {
		text += fmt.Sprintf(" named %q", s.name)
	}
	if s.where != "" {
		text += " at " + s.where
	}
	return text
}

// key is what must be unique in a group.
func (s Subscription) key() string {
	if s.name != "" {
		return s.name
	}
	return s.topic
}

// callSite returns file and line of the caller outside this package and cap.
func callSite() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		ours := strings.HasPrefix(f.Function, "github.com/capbus/gocap/subscribe.") ||
			strings.HasPrefix(f.Function, "github.com/capbus/gocap/cap.")
		if f.File != "" && !ours {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}
