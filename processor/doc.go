// Package processor sends the outbox: the [Dispatcher] hands rows to the
// transport and stores what came of them, [NeedRetry] finds the rows of either
// table that need another look, the [Waker] tells as soon as a transaction has
// ended, the [Collector] deletes what has expired. Package cap puts them
// together.
package processor
