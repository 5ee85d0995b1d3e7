package cap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

type (
	// Options configures a bus; see gocap.Options. Storage and Transport are
	// required.
	Options = gocap.Options
	// FailedInfo tells what has failed for good; see
	// Options.FailedThresholdCallback.
	FailedInfo = gocap.FailedInfo
	// Message is what travels: a topic, headers and a body.
	Message = transport.Message
)

// Bus publishes and consumes. Its methods may be called concurrently.
type Bus struct {
	opts Options
	log  *quiet.Logger
	// byDefault: this bus serves cap.Subscribe, so it may be the default one.
	byDefault bool

	// life is held by Start and Stop, one after another.
	life    chan struct{}
	engines runningEngines
	probes  *probes
	// more is served beside the subscriptions of the options. Handlers sets it
	// before the application starts.
	more  []subscribe.Subscription
	hooks int // in the lifecycle of fx
}

// New returns a bus that does not run yet: it can publish, and Start lets it
// send and handle. It opens nothing and starts no goroutine. When there is no
// default bus and Options.Registry is nil, it becomes the default one. The error
// joins every *FieldError of the options.
func New(opts Options) (*Bus, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("cap: %w", err)
	}
	byDefault := opts.Registry == nil
	opts = opts.WithDefaults()
	if v, ok := opts.Transport.(transport.Versioned); ok {
		opts.Transport = v.ForVersion(opts.Version)
	}
	b := &Bus{opts: opts, log: &quiet.Logger{Log: opts.Logger}, byDefault: byDefault, life: make(chan struct{}, 1), probes: newProbes()}
	b.offer()
	return b, nil
}

// offer makes the bus the default one, where that is its place.
func (b *Bus) offer() {
	if b.byDefault {
		defaultBus.CompareAndSwap(nil, b)
	}
}

// Start makes the tables (unless SkipMigrations), joins as an instance, and lets
// the bus send and handle until Stop; ctx bounds starting only. A broker that is
// away delays the sending, it does not fail the start. Errors: ErrStarted,
// subscribe.ErrRegistryInUse, subscriptions that cannot be served, a storage
// that cannot be used. After an error the bus is as before.
func (b *Bus) Start(ctx context.Context) error {
	if err := b.lock(ctx); err != nil {
		return fmt.Errorf("cap: start: %w", err)
	}
	defer b.unlock()
	if b.engines.get() != nil {
		return fmt.Errorf("cap: start: %w", ErrStarted)
	}
	e, err := b.prepare(ctx)
	if err != nil {
		return fmt.Errorf("cap: start: %w", err)
	}
	b.engines.set(e) // before the first handler runs: what it publishes is this instance's
	e.run(context.WithoutCancel(ctx))
	b.offer()
	t := b.opts.Transport.Traits()
	b.opts.Logger.LogAttrs(ctx, slog.LevelInfo, "bus started", slog.String("version", b.opts.Version),
		slog.String("storage", fmt.Sprintf("%T", b.opts.Storage)), slog.String("transport", t.Name), slog.Any("groups", e.consumer.Groups()))
	b.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "bus options", slog.Any("options", b.opts))
	return nil
}

// Stop lets nothing new begin, waits for sends and handlers that are under way,
// and leaves the rest to whoever runs next. It returns within
// Options.StopTimeout, and by the deadline of ctx; when ctx has ended already, or
// ends meanwhile, within about a second. Three seconds before (a fifth of the
// time, if that is less) the contexts of handlers end with cause ErrStopping.
// What was cut so is not counted as an attempt, will be handled again, and is in
// the error. Stop may be called by many and early; all of them return when it is
// over.
func (b *Bus) Stop(ctx context.Context) error {
	end := newEnding(ctx, b.opts.StopTimeout)
	wait, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.deadline)
	defer cancel()
	if err := b.lock(wait); err != nil {
		return fmt.Errorf("cap: stop: another Start or Stop is still under way: %w", err)
	}
	defer b.unlock()
	e := b.engines.get()
	if e == nil {
		defaultBus.CompareAndSwap(b, nil)
		return nil
	}
	err := e.stop(ctx, end)
	b.engines.set(nil)
	defaultBus.CompareAndSwap(b, nil)
	b.opts.Logger.LogAttrs(wait, slog.LevelInfo, "bus stopped", slog.Bool("clean", err == nil))
	if err != nil {
		return fmt.Errorf("cap: stop: %w", err)
	}
	return nil
}

// Run starts the bus, waits until ctx ends, and stops it. The error is that of
// Start or Stop.
func (b *Bus) Run(ctx context.Context) error {
	if err := b.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return b.Stop(context.WithoutCancel(ctx))
}

// Migrate makes or changes the tables, as Start does. On a storage without
// tables it does nothing.
func (b *Bus) Migrate(ctx context.Context) error {
	if err := b.migrate(ctx); err != nil {
		return fmt.Errorf("cap: migrate: %w", err)
	}
	return nil
}

func (b *Bus) migrate(ctx context.Context) error {
	if m, ok := b.opts.Storage.(storage.Migrator); ok {
		return m.Migrate(ctx)
	}
	return nil
}

// InTx runs fn in a transaction of the storage: it commits when fn returns nil,
// and rolls back when fn returns an error or panics. tx is also the transaction
// of the context, so that Publish finds it there.
func (b *Bus) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) (err error) {
	tx, err := b.opts.Storage.Begin(ctx)
	if err != nil {
		return fmt.Errorf("cap: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after an error or a panic; else nothing
	if err := fn(ContextWithTx(ctx, tx.Value()), tx.Value()); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cap: commit: %w", err)
	}
	return nil
}

// Wake lets the bus look at the tables now. It is for rows that were committed
// in a way that the bus does not see.
func (b *Bus) Wake() {
	if e := b.engines.get(); e != nil {
		e.sendRetry.Kick()
		e.handleRetry.Kick()
		e.dispatcher.Order().Kick()
		e.handleOrder.Kick()
	}
}

func (b *Bus) lock(ctx context.Context) error {
	select {
	case b.life <- struct{}{}:
		return nil
	default:
	}
	select {
	case b.life <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Bus) unlock() { <-b.life }

// ending is the schedule of a Stop.
type ending struct {
	grace    time.Time // handlers and sends may finish until then
	last     time.Time // outcomes are stored until then
	deadline time.Time
}

func newEnding(ctx context.Context, timeout time.Duration) ending {
	now := time.Now()
	deadline := now.Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if ctx.Err() != nil || deadline.Before(now) {
		deadline = now.Add(min(timeout, time.Second))
		return ending{grace: now, last: now.Add(deadline.Sub(now) / 2), deadline: deadline}
	}
	reserve := min(3*time.Second, deadline.Sub(now)/5)
	return ending{grace: deadline.Add(-reserve), last: deadline.Add(-reserve / 3), deadline: deadline}
}

var errNoTransport = errors.New("Options.Transport is required to start a bus; without one it can only publish")
