package tracking

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/gormtracker"
	"github.com/capbus/gocap/idempotency/redistracker"
)

// What a child is told beside its kind: the DSN, or the address of Redis and the
// prefix of its keys.
const (
	dsnEnv    = "GOCAP_TRACKING_DSN"
	prefixEnv = "GOCAP_TRACKING_PREFIX"
	hangEnv   = "GOCAP_TRACKING_HANG" // it takes keyOf(0), and is killed
)

// perProcess is how many goroutines of a process want the key at once.
const perProcess = 32

// worker has the effect that must be there once.
type worker struct {
	tracker idempotency.Tracker
	effect  func(ctx context.Context, key string) error
	close   func() error
}

// child reads keys, and wants each of them many times at once. It says when it
// is done with one.
func child(kind string) error {
	w, err := newWorker(kind)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if os.Getenv(hangEnv) != "" {
		return w.hang(ctx)
	}
	say("ready")
	for keys := bufio.NewScanner(os.Stdin); keys.Scan(); {
		if err := w.many(ctx, keys.Text()); err != nil {
			return err
		}
		say("done")
	}
	return w.close()
}

// say writes a line that the parent reads.
func say(word string) {
	if _, err := fmt.Fprintln(os.Stdout, word); err != nil {
		os.Exit(4) // the parent is gone
	}
}

func (w *worker) many(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, perProcess)
	for i := range perProcess {
		wg.Go(func() {
			errs[i] = untilDone(ctx, w.tracker, key, func(ctx context.Context) error { return w.effect(ctx, key) })
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// hang has its effect, and never returns.
func (w *worker) hang(ctx context.Context) error {
	return w.tracker.Once(ctx, keyOf(0), func(ctx context.Context) error {
		if err := w.effect(ctx, keyOf(0)); err != nil {
			return err
		}
		say("hangs")
		select {}
	})
}

// untilDone is what the engine does: a key in progress is tried again.
func untilDone(ctx context.Context, t idempotency.Tracker, key string, fn func(ctx context.Context) error) error {
	for {
		err := t.Once(ctx, key, fn)
		if !errors.Is(err, idempotency.ErrInProgress) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func newWorker(kind string) (*worker, error) {
	if kind == "redis" {
		return redisWorker(os.Getenv(dsnEnv), os.Getenv(prefixEnv))
	}
	for _, d := range databases() {
		if d.name != kind {
			continue
		}
		store, err := d.open(os.Getenv(dsnEnv))
		if err != nil {
			return nil, err
		}
		return &worker{
			tracker: gormtracker.New(store.DB(), gormtracker.Config{}),
			effect: func(ctx context.Context, key string) error {
				tx, ok := gormtracker.TxFromContext(ctx)
				if !ok {
					return errors.New("no transaction in the context of fn")
				}
				return write(tx, key)
			},
			close: store.Close,
		}, nil
	}
	return nil, errors.New("there is no kind " + kind)
}

func write(tx *gorm.DB, id string) error {
	return tx.Exec("INSERT INTO effects (id) VALUES (?)", id).Error
}

func redisWorker(address, prefix string) (*worker, error) {
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(opts)
	return &worker{
		tracker: redistracker.New(client, redistracker.Config{Prefix: prefix}),
		effect:  func(ctx context.Context, key string) error { return client.Incr(ctx, prefix+key).Err() },
		close:   client.Close,
	}, nil
}
