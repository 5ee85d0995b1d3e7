package idempotency

import (
	"context"
	"errors"
)

// Errors that callers can tell apart with errors.Is.
var (
	// ErrInProgress: another call of Once with the key has begun and not ended.
	// Whether it will succeed is not known yet; try again later.
	ErrInProgress = errors.New("the key is in progress elsewhere")
	// ErrNoKey: the key is empty. All messages would have the same.
	ErrNoKey = errors.New("the key is empty")
)

// Tracker remembers which keys are done. A key is any bytes but none, of any
// length; keys are the same if they are the same bytes. How long a key is
// remembered is said by each tracker. Methods may be called concurrently.
//
// Of HasProcessed and MarkAsProcessed a handler can make what Once does, but not
// atomically: two that run at once both find the key new. They are for reading,
// and for marking what was done in another way.
type Tracker interface {
	// HasProcessed reports whether the key is done. In progress is not done.
	HasProcessed(ctx context.Context, key string) (bool, error)

	// MarkAsProcessed notes that the key is done. One that is done already stays
	// so, without an error.
	MarkAsProcessed(ctx context.Context, key string) error

	// Once takes the key, runs fn, and notes that the key is done if fn returns
	// nil. A key that is done is nil, without running fn. After an error or a
	// panic of fn the key is as if never taken, and the error is returned as fn
	// made it. A key in progress is ErrInProgress, or the call waits for the
	// other's end; it is never nil. So is that of an enclosing Once, if fn passes
	// its context on. fn must use the context that it gets: it may carry a
	// transaction, and ends when the key cannot be kept any longer.
	//
	// An error that is not fn's leaves open whether fn has run.
	Once(ctx context.Context, key string, fn func(ctx context.Context) error) error
}
