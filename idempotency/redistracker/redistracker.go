// Package redistracker is an idempotency.Tracker in Redis (tested with 7.0), for
// instances that share no database, or for effects outside one.
//
// It is at least once, and cannot be more: a process that dies after the effect
// and before its record, or that cannot reach Redis then, leaves a key that is
// new again after Config.Claim. A Redis that evicts keys (maxmemory-policy other
// than noeviction), loses its memory, or fails over before its replica has a key,
// forgets. While two are alive, one key is never in work by both: the context of
// fn ends before its claim does. Whoever needs more than that takes gormtracker.
package redistracker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/capbus/gocap/idempotency"
)

// Tracker keeps keys in Redis. Its methods may be called concurrently. It has no
// goroutine of its own.
type Tracker struct {
	client redis.UniversalClient
	cfg    Config
	err    error // why it cannot be used
}

var _ idempotency.Tracker = (*Tracker)(nil)

// The value of a key: that it is done, or who has claimed it.
const (
	done  = "done"
	claim = "claim:"
)

// settleTime bounds how long the end of a Once is written, after its context.
const settleTime = 5 * time.Second

// settle replaces a claim, if it is still ours, by what is given (for
// milliseconds), or deletes it. It is a script because a claim may run out
// between a look and a write. What is there already is not asked whose it was:
// the client sends the script again when no answer came.
const settle = `
local value = redis.call('GET', KEYS[1])
if value == ARGV[2] then return 1 end
if value ~= ARGV[1] then return 0 end
if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`

// New returns a Tracker. It does not connect, and does not fail: Validate, and
// every other method, reports what is wrong. The client stays the caller's.
func New(client redis.UniversalClient, cfg Config) *Tracker {
	t := &Tracker{client: client, cfg: cfg.withDefaults(), err: cfg.Validate()}
	if client == nil {
		t.err = errors.Join(t.err, errors.New("redistracker: the client is nil"))
	}
	return t
}

// Validate reports what is wrong with the client or the Config given to New. It
// does not connect.
func (t *Tracker) Validate() error { return t.err }

// HasProcessed implements idempotency.Tracker.
func (t *Tracker) HasProcessed(ctx context.Context, key string) (bool, error) {
	if err := t.usable(ctx, key); err != nil {
		return false, err
	}
	value, err := t.value(ctx, key)
	if err != nil {
		return false, fmt.Errorf("redistracker: has processed: %w", err)
	}
	return value == done, nil
}

// MarkAsProcessed implements idempotency.Tracker. A Once of the key that is in
// progress goes on. Retention begins anew.
func (t *Tracker) MarkAsProcessed(ctx context.Context, key string) error {
	if err := t.usable(ctx, key); err != nil {
		return err
	}
	if err := t.client.Set(ctx, t.name(key), done, t.cfg.Retention).Err(); err != nil {
		return fmt.Errorf("redistracker: mark as processed: %w", err)
	}
	return nil
}

// Once implements idempotency.Tracker. It does not wait: a key in progress is
// ErrInProgress. The context that fn gets ends before the claim does, with a
// cause that says so. An error after fn has returned nil says that its success
// is not recorded: after Config.Claim the key is new again.
func (t *Tracker) Once(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	if err := t.usable(ctx, key); err != nil {
		return err
	}
	mine := claim + rand.Text()
	// From before the claim was sent: it may begin at any moment from here on.
	fctx, cancel := context.WithTimeoutCause(ctx, t.cfg.Claim*9/10,
		fmt.Errorf("redistracker: fn has not returned within nine tenths of Config.Claim (%s): %w", t.cfg.Claim, context.DeadlineExceeded))
	defer cancel()
	if fresh, err := t.take(ctx, key, mine); err != nil || !fresh {
		return err
	}
	return t.run(fctx, key, mine, fn)
}

// take claims the key. One that is done is not fresh.
func (t *Tracker) take(ctx context.Context, key, mine string) (fresh bool, err error) {
	ok, err := t.client.SetNX(ctx, t.name(key), mine, t.cfg.Claim).Result()
	if ok && err == nil {
		return true, nil
	}
	value := ""
	if err == nil {
		value, err = t.value(ctx, key)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("redistracker: once: %w", err)
	case value == done:
		return false, nil
	case value == mine: // the client has sent it again, because no answer came
		return true, nil
	}
	return false, idempotency.ErrInProgress // or over in this moment
}

func (t *Tracker) run(ctx context.Context, key, mine string, fn func(ctx context.Context) error) (err error) {
	ok := false
	defer func() {
		if !ok { // fn has failed, panicked or ended its goroutine
			_, _ = t.settle(ctx, key, mine, "") // else its claim ends by itself
		}
	}()
	if err := fn(ctx); err != nil {
		return err
	}
	ok = true
	kept, err := t.settle(ctx, key, mine, done)
	if err != nil {
		return fmt.Errorf("redistracker: once: done, but not recorded: it may be done again: %w", err)
	}
	if !kept {
		return errors.New("redistracker: once: done, but the claim of the key was lost meanwhile: it may be done again")
	}
	return nil
}

// settle ends a claim, also when the context has ended.
func (t *Tracker) settle(ctx context.Context, key, mine, value string) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	n, err := t.client.Eval(ctx, settle, []string{t.name(key)}, mine, value, t.cfg.Retention.Milliseconds()).Int()
	return n == 1, err
}

// value is that of a key in Redis, "" if there is none.
func (t *Tracker) value(ctx context.Context, key string) (string, error) {
	value, err := t.client.Get(ctx, t.name(key)).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

func (t *Tracker) name(key string) string {
	h := sha256.Sum256([]byte(key))
	return t.cfg.Prefix + hex.EncodeToString(h[:])
}

func (t *Tracker) usable(ctx context.Context, key string) error {
	switch {
	case t.err != nil:
		return t.err
	case key == "":
		return idempotency.ErrNoKey
	}
	return ctx.Err()
}
