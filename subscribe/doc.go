// Package subscribe is the receiving side: subscriptions, their registry, and
// the consumer that stores what arrives in the inbox and runs the handlers.
//
// Applications make subscriptions with cap.Subscribe, [To] or [Tagged], those
// that answer with [Reply], and say how a failed message goes on with [Reject],
// [RetryAfter] and [Snooze], or for kinds of errors with [OnError].
package subscribe
