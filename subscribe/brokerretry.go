package subscribe

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capbus/gocap/transport"
)

// BrokerRetry makes the group one without an inbox: a message is handled as the
// broker delivers it, acked when the handler has returned nil, and tried again by
// the broker after ttl, for this group alone, until n attempts have failed. Then
// the broker keeps it apart (RabbitMQ: in <queue>.dlq), and
// Options.FailedThresholdCallback is told, unless the process dies in between.
// 0 means 3 attempts, and a minute. It suits services whose work may be done
// twice, and which want no tables for it.
//
// All subscriptions of a group have it, with the same values, or none; their
// topics must not overlap, since a message has one handler; and the transport
// must be able to (Traits.BrokerRetry). Else the bus does not start. Ordered and
// the settings of retries cannot be had with it.
//
// What differs for a handler: a message that was handled comes again when its
// ack is lost. There is no inbox transaction: cap.TxFromContext is an error, and
// cap.Publish needs a transaction of the handler's own or cap.NoTx. Reject sets
// the message apart at once. RetryAfter is a failed attempt; its wait is the ttl.
// Snooze counts no attempt, as elsewhere, but the message keeps its place among
// the few that the broker delivers at once, for the ttl at most. A delivery that
// matches no subscription is a failed attempt. The broker may bound how long a
// handler takes (RabbitMQ: consumer_timeout, 30 minutes).
func BrokerRetry(n int, ttl time.Duration) Option {
	return func(s *Subscription) {
		s.check(n >= 0, fmt.Sprintf("BrokerRetry: %d attempts are negative", n))
		s.check(ttl >= 0, fmt.Sprintf("BrokerRetry: a ttl of %s is negative", ttl))
		s.retry = &transport.BrokerRetry{Attempts: cmp.Or(n, 3), Wait: cmp.Or(ttl, time.Minute)}
	}
}

// checkRetry returns what BrokerRetry cannot be had with.
func (s *Subscription) checkRetry() error {
	switch {
	case s.retry == nil:
		return nil
	case s.ordered:
		return errors.New("Ordered and BrokerRetry: a message that the broker tries again has lost its place")
	case s.retryCount > 0 || s.retryInterval > 0 || s.backoff != nil:
		return errors.New("BrokerRetry says how often and when a message is tried again; leave out FailedRetryCount, FailedRetryInterval and RetryBackoff")
	}
	return nil
}

// checkRetries returns what keeps subscriptions from being one group, of those
// that have BrokerRetry.
func checkRetries(subs []Subscription) error {
	var errs []error
	for i, s := range subs {
		for _, first := range subs[:i] {
			if first.group == s.group {
				errs = append(errs, first.together(s))
			}
		}
	}
	return errors.Join(errs...)
}

func (s Subscription) together(other Subscription) error {
	switch a, b := s.retry, other.retry; {
	case a == nil && b == nil:
		return nil
	case a == nil || b == nil:
		with, without := s, other
		if a == nil {
			with, without = other, s
		}
		return fmt.Errorf("subscription %s has BrokerRetry, and subscription %s has not: a group has an inbox or not; "+
			"give both the option, or one of them another subscribe.Group", with, without)
	case *a != *b:
		return fmt.Errorf("subscription %s has BrokerRetry(%d, %s), and subscription %s has BrokerRetry(%d, %s): a group has one queue for what is tried again",
			s, a.Attempts, a.Wait, other, b.Attempts, b.Wait)
	case overlap(strings.Split(s.topic, "."), strings.Split(other.topic, ".")):
		return fmt.Errorf("subscriptions %s and %s overlap: with BrokerRetry a message has one handler in a group; "+
			"give one of them another subscribe.Group", s, other)
	}
	return nil
}

// overlap reports whether there is a topic that both patterns match.
func overlap(a, b []string) bool {
	reach := make([]bool, len(b)+1) // for the words of a behind i: whether they and b[j:] do
	for i := len(a); i >= 0; i-- {
		below := append([]bool(nil), reach...)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				reach[j] = true
			case i < len(a) && a[i] == "#":
				reach[j] = below[j] || j < len(b) && reach[j+1]
			case j < len(b) && b[j] == "#":
				reach[j] = reach[j+1] || i < len(a) && below[j]
			case i < len(a) && j < len(b):
				reach[j] = below[j+1] && (a[i] == "*" || b[j] == "*" || a[i] == b[j])
			default:
				reach[j] = false
			}
		}
	}
	return reach[0]
}
