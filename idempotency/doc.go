// Package idempotency keeps a handler from having its effect twice where the
// inbox transaction cannot: when the effect is in another system, or when the
// same event is published again under a new id.
//
// A [Tracker] remembers which keys are done. [Middleware] asks it for every
// message; a handler may as well call [Tracker.Once] itself. Trackers:
//
//   - idempotency/gormtracker: a table. The key and what the handler writes in the
//     same transaction are one: exactly once.
//   - idempotency/redistracker: Redis. At least once: a process that dies between
//     the effect and its record has it again.
//   - idempotency/memtracker: this process alone, for tests and single instances.
//
// A handler that works in the inbox transaction (gormstore.Handle) needs none of
// them for repeats of one message: the inbox knows its id. If it has one all the
// same, that must be gormtracker in the inbox transaction, see [Middleware].
package idempotency
