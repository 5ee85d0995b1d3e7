package cap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

const (
	sendTimeout  = time.Minute // bounds one Send; adapters wait less for a confirmation
	leaveTimeout = time.Second // bounds the clean-up of a Start that failed
	receiveGrace = time.Second // bounds how long a Stop still receives, for sends under way
)

// runningEngines is what runs between Start and Stop.
type runningEngines struct{ p atomic.Pointer[engines] }

func (r *runningEngines) get() *engines  { return r.p.Load() }
func (r *runningEngines) set(e *engines) { r.p.Store(e) }

// engines is everything that runs: the two engines, what feeds them, and the
// two numbers under which they own rows.
type engines struct {
	sending, handling      *rows.Keeper // nil until made
	sender                 *declaring
	dispatcher             *processor.Dispatcher
	consumer               *subscribe.Consumer
	sendRetry, handleRetry *processor.NeedRetry
	also                   []*alsoVersion
	handleOrder            *processor.Order
	waker                  *processor.Waker
	versions               *versionWatch
	collector              *processor.Collector
	release                func() // the registry

	endTake, endReceive, endWork, endLast, endKeep context.CancelCauseFunc

	sends      chan struct{} // closed when the dispatcher has finished
	work, keep sync.WaitGroup
}

// prepare makes the engines and joins. Nothing runs yet.
func (b *Bus) prepare(ctx context.Context) (*engines, error) {
	if b.opts.Transport == nil {
		return nil, errNoTransport
	}
	subs, release, err := b.opts.Registry.Use()
	if err != nil {
		return nil, err
	}
	e := &engines{release: release}
	if err := b.join(ctx, e, slices.Concat(subs, b.opts.Subscriptions, b.more)); err != nil {
		// What ended the start may have ended ctx, too.
		lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		return nil, errors.Join(err, e.leave(lctx))
	}
	return e, nil
}

func (b *Bus) join(ctx context.Context, e *engines, subs []subscribe.Subscription) error {
	if !b.opts.SkipMigrations {
		if err := b.migrate(ctx); err != nil {
			return err
		}
	}
	if err := b.opts.Storage.Check(ctx); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	e.sending = rows.NewKeeper(b.opts.Storage, b.instance(storage.Outbox), b.opts.Logger)
	e.handling = rows.NewKeeper(b.opts.Storage, b.instance(storage.Inbox), b.opts.Logger)
	b.makeAlso(e)
	if err := b.assemble(e, subs); err != nil { //nolint:contextcheck // the hook of outcomes belongs to no call
		return err
	}
	if err := b.declare(ctx, e); err != nil {
		return err
	}
	if err := e.sending.Join(ctx); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if err := e.handling.Join(ctx); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	return nil
}

func (b *Bus) assemble(e *engines, subs []subscribe.Subscription) (err error) {
	o := b.opts
	policy := rows.Policy{
		Count: o.FailedRetryCount, Interval: o.FailedRetryInterval, Immediate: max(0, o.ImmediateRetries),
		Backoff: o.RetryBackoff, KeepFailed: o.FailedMessageExpiredAfter, OweCallback: o.FailedThresholdCallback != nil,
	}
	keepDone := o.SucceedMessageExpiredAfter
	if keepDone < 0 {
		keepDone = 24 * time.Hour // the inbox needs its rows to know what was handled
	}
	e.consumer, err = subscribe.NewConsumer(subscribe.ConsumerConfig{
		Storage: o.Storage, Transport: o.Transport, Keeper: e.handling, Also: e.keepers(storage.Inbox), Log: b.log, Codec: o.Codec, Subscriptions: subs, Middleware: o.Middleware,
		Version: o.Version, DefaultGroup: o.DefaultGroupName, GroupPrefix: o.GroupNamePrefix, TopicPrefix: o.TopicNamePrefix,
		Policy: policy, Callback: b.callback(gocap.Subscribe), KeepDone: keepDone,
		Context: b.handlerContext, Reply: b.reply, AllowedReplies: o.AllowedReplyTopics,
		Receivers: o.ConsumerCount, Concurrency: o.Concurrency, BatchSize: o.BatchSize, Timeout: o.HandlerTimeout,
		UnhandledAfter: o.UnhandledAfter, AdoptInterval: o.FallbackWindow / 3, Probation: o.FallbackWindow, TxHold: o.FallbackWindow / 2, MaxBytes: rows.MaxLookBytes, Locked: o.UseStorageLock, Trace: o.HandleTrace,
	})
	if err != nil {
		return err
	}
	e.handleRetry = processor.NewNeedRetry(processor.NeedRetryConfig{
		Keeper: e.handling, Hand: e.consumer.Hand(), Taker: e.consumer, Log: b.log,
		PollInterval: o.PollInterval, BatchSize: o.BatchSize, MaxBytes: rows.MaxLookBytes, Locked: o.UseStorageLock,
		TakenOver: subscribe.TraceTakenOver(o.HandleTrace, b.log),
	})
	e.consumer.OnLater(e.handleRetry.Later)
	e.handleOrder = processor.NewOrder(processor.OrderConfig{
		Keeper: e.handling, Hand: e.consumer.Hand(), Taker: keyTaker{e.consumer}, Log: b.log,
		PollInterval: o.PollInterval, BatchSize: o.BatchSize, MaxBytes: rows.MaxLookBytes,
	})
	e.consumer.OnKeys(e.handleOrder)
	e.sender = &declaring{Transport: o.Transport, srcs: e.consumer.Sources()}
	e.dispatcher, e.sendRetry = processor.NewDispatcher(processor.DispatcherConfig{
		Transport: e.sender, Log: b.log, Policy: policy, Callback: b.callback(gocap.Publish),
		KeepSent: o.SucceedMessageExpiredAfter, AllowUnroutable: o.AllowUnroutable,
		SendWindow: o.SendWindow, BatchSize: o.BatchSize, SendTimeout: sendTimeout, Probation: o.FallbackWindow, Locked: o.UseStorageLock, Trace: o.SendTrace,
		Also: e.keepers(storage.Outbox),
	}, e.sending, o.PollInterval)
	e.waker = processor.NewWaker(e.sending, e.dispatcher, e.sendRetry, b.log)
	e.collector = &processor.Collector{
		Storage: o.Storage, Log: b.log, Version: o.Version, Also: o.AlsoVersions, Interval: o.CollectorCleaningInterval, BatchSize: o.CollectorBatchSize, Trace: o.SendTrace,
	}
	b.feedAlso(e)
	e.versions = &versionWatch{bus: b}
	return nil
}

// callback turns a failed row into a call of the user's callback; nil where
// there is none.
func (b *Bus) callback(kind gocap.Kind) func(context.Context, *storage.Record, *transport.Message) {
	f := b.opts.FailedThresholdCallback
	if f == nil {
		return nil
	}
	return func(ctx context.Context, rec *storage.Record, m *transport.Message) {
		defer func() {
			if p := recover(); p != nil {
				b.opts.Logger.LogAttrs(ctx, slog.LevelError, "failed-threshold callback panicked", slog.String("topic", rec.Topic),
					slog.String("msg_id", m.ID), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			}
		}()
		f(b.handlerContext(ctx), FailedInfo{
			Kind: kind, Message: m, Group: rec.Group, Subscriber: rec.Subscriber,
			Attempts: rec.Retries, LastError: rec.LastError, FailedAt: time.Now().UTC(),
		})
	}
}

// run starts everything. root has no deadline.
func (e *engines) run(root context.Context) {
	var take, receive, work, last, keep context.Context
	take, e.endTake = context.WithCancelCause(root)
	receive, e.endReceive = context.WithCancelCause(root)
	work, e.endWork = context.WithCancelCause(root)
	last, e.endLast = context.WithCancelCause(root)
	keep, e.endKeep = context.WithCancelCause(root)
	e.keep.Go(func() { e.sending.Run(keep) })
	e.keep.Go(func() { e.handling.Run(keep) })
	for _, a := range e.also {
		e.keep.Go(func() { a.keeper.Run(keep) })
	}
	e.work.Go(func() { e.consumer.Run(take, receive, work, last) })
	e.sends = make(chan struct{})
	e.work.Go(func() {
		defer close(e.sends)
		e.dispatcher.Run(take, work, last)
	})
	loops := []func(context.Context){e.sendRetry.Run, e.handleRetry.Run, e.dispatcher.Order().Run, e.handleOrder.Run, e.waker.Run, e.collector.Run, e.versions.run}
	for _, a := range e.also {
		loops = append(loops, a.retry.Run, a.order.Run)
	}
	for _, loop := range loops {
		e.work.Go(func() { loop(take) })
	}
}

// stop ends everything, in the order of end, and says what was cut. When ctx
// ends meanwhile, it hurries.
func (e *engines) stop(ctx context.Context, end ending) error {
	hurry := ctx.Done()
	if ctx.Err() != nil {
		hurry = nil // end knows
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.work.Wait()
	}()
	e.endTake(ErrStopping)
	// In process, a send waits until this bus's own groups have acked.
	within(e.sends, earlier(end.grace, time.Now().Add(receiveGrace)), hurry)
	e.endReceive(ErrStopping)
	var err error
	if !within(done, end.grace, hurry) {
		if hurry != nil && ctx.Err() != nil {
			end = newEnding(ctx, time.Until(end.deadline))
		}
		if n := e.dispatcher.Hand().Len() + e.consumer.InWork(); n > 0 {
			err = fmt.Errorf("%d messages were in work when the time was up; they will be sent or handled again", n)
		}
	}
	e.endWork(ErrStopping)
	within(done, end.last, nil)
	e.endLast(ErrStopping)
	if !within(done, end.last, nil) {
		err = errors.Join(err, errors.New("a handler or callback did not return when its context ended; its goroutine goes on until it does"))
	}
	e.endKeep(ErrStopping)
	e.keep.Wait()
	lctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.deadline)
	defer cancel()
	return errors.Join(err, e.leave(lctx))
}

// leave ends all numbers and gives the registry back.
func (e *engines) leave(ctx context.Context) error {
	defer e.release()
	var errs []error
	for _, k := range e.numbers() {
		if k != nil {
			errs = append(errs, k.Leave(ctx))
		}
	}
	return errors.Join(errs...)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// within waits for done until t, or until hurry; a t that has passed gives it a
// moment.
func within(done <-chan struct{}, t time.Time, hurry <-chan struct{}) bool {
	timer := time.NewTimer(max(time.Until(t), 10*time.Millisecond))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}

// owner is the number under which published rows are sent: 0 when the bus does
// not run, so that whoever runs next takes them.
func (b *Bus) owner() int64 {
	if e := b.engines.get(); e != nil {
		if t := e.sending.Current(); t != nil {
			return t.Number()
		}
	}
	return 0
}

// watch tells the engine of rows in a transaction that has not ended.
func (b *Bus) watch(w storage.Writer, x processor.Written) {
	if e := b.engines.get(); e != nil && x.Owner != 0 && len(x.IDs)+len(x.Keys) > 0 {
		e.waker.Watch(w, x)
	}
}

// committed tells the engine of rows that are committed.
func (b *Bus) committed(x processor.Written) {
	if e := b.engines.get(); e != nil && x.Owner != 0 && len(x.IDs)+len(x.Keys) > 0 {
		e.waker.Committed(x)
	}
}

// expect tells the engine when a delayed row will be due.
func (b *Bus) expect(d time.Duration) {
	if e := b.engines.get(); e != nil {
		e.sendRetry.Expect(d)
	}
}
