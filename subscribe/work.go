package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// work runs handlers until next ends; what it has begun it finishes on the
// context work. A handler that ends its goroutine (runtime.Goexit, as FailNow of
// a test does) takes this one with it: another goes on, by again.
func (g *group) work(next, work context.Context, again func()) {
	whole := false
	defer func() {
		if !whole {
			again()
		}
	}()
	for g.workOnce(next, work) {
	}
	whole = true
}

func (g *group) workOnce(next, work context.Context) bool {
	rt, rs, ok := g.queue.Next(next, 1)
	if !ok {
		return false
	}
	defer g.queue.Done(rt)
	rt.run(work, rs[0])
	return true
}

// run makes one attempt of a row and settles it.
func (rt *route) run(work context.Context, r *rows.Row) {
	if d, ok := r.Note.(*direct); ok {
		rt.runDirect(work, r, d)
		return
	}
	desk := rt.group.c.desk
	if r.Tenure.Over() {
		desk.GiveBack(r)
		return
	}
	run := rt.group.beginRun(r)
	if run == nil {
		desk.GiveBack(r)
		return
	}
	defer rt.group.endRun(run)
	ctx, cancel := rt.context(work, r.Tenure.Context())
	defer cancel(nil)
	m := message(r.Record)
	inbox := &inboxTx{places: rt.group.c.places, ctx: ctx, cancel: cancel}
	hctx, done := rt.handling(storage.ContextWithTx(ctx, inbox.get), r, m)
	err := errGoexit
	defer func() {
		done(err)
		rt.finish(ctx, work, r, inbox, err)
	}()
	err = rt.call(hctx, m)
}

// handling completes the context of a handler and tells of it; done gets what it
// returned.
func (rt *route) handling(ctx context.Context, r *rows.Row, m *transport.Message) (hctx context.Context, done func(err error)) {
	info := Info{Message: m, Group: r.Group, Subscriber: r.Subscriber, Attempt: r.Retries + 1}
	ctx = rt.answering(contextWithInfo(ctx, info), r, m)
	if f := rt.group.c.cfg.Context; f != nil {
		ctx = f(ctx)
	}
	return rt.group.c.cfg.Trace.handle(ctx, rt.group.c.cfg.Log, info)
}

var errGoexit = errors.New("handler ended its goroutine (runtime.Goexit)")

// beginAgain is the wait after an attempt that got no inbox transaction.
const beginAgain = time.Second

// finish settles an attempt that has ended with err.
func (rt *route) finish(ctx, work context.Context, r *rows.Row, inbox *inboxTx, err error) {
	desk := rt.group.c.desk
	tx, failed := inbox.end()
	if err != nil && failed != nil && work.Err() == nil && !r.Tenure.Over() {
		// The database's business, not the handler's: nothing is counted.
		rt.group.c.cfg.Log.Warn(ctx, "no inbox transaction, trying again", r.Group, slog.String("topic", r.Topic),
			slog.String("group", r.Group), slog.String("msg_id", r.MessageID), slog.Any("err", failed))
		desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Postpone, After: beginAgain})
		return
	}
	if tx != nil && err == nil {
		o := storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: rt.group.c.cfg.KeepDone}
		err = rt.commit(ctx, tx, r, o)
		if err == nil {
			desk.Committed(r, o)
			return
		}
		if errors.Is(err, storage.ErrLost) {
			desk.Done(r)
			return
		}
	} else if tx != nil {
		_ = tx.Rollback() // nothing of it may stay; the row says what failed
	}
	rt.settle(ctx, work, r, err)
}

// context is the context of one attempt. It ends with work, with the tenure, and
// when its time is up.
func (rt *route) context(work, tenure context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(work)
	stop := context.AfterFunc(tenure, func() { cancel(context.Cause(tenure)) })
	release := func() {}
	if rt.timeout > 0 {
		cause := fmt.Errorf("handler took longer than %s: %w", rt.timeout, context.DeadlineExceeded)
		timer := time.AfterFunc(rt.timeout, func() { cancel(cause) })
		release = func() { timer.Stop() }
	}
	return ctx, func(cause error) {
		stop()
		release()
		cancel(cause)
	}
}

// call runs the handler, and publishes its answer. A panic is a failed attempt.
func (rt *route) call(ctx context.Context, m *transport.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v", p)
			rt.group.c.cfg.Log.Log.LogAttrs(ctx, slog.LevelError, "handler panicked", slog.String("topic", m.Topic),
				slog.String("group", rt.group.name), slog.String("msg_id", m.ID), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	if err = rt.handler.Handle(ctx, m); err != nil {
		_ = err.Error() // one that panics, such as a nil pointer in an error, does so here
		return err
	}
	return rt.answer(ctx)
}

// commit makes the handler's writes and the row's success one.
func (rt *route) commit(ctx context.Context, tx storage.Tx, r *rows.Row, o storage.Outcome) error {
	err := tx.Settle(ctx, r.Tenure.Member, o)
	if err == nil {
		err = tx.Commit()
	}
	if err == nil {
		return nil
	}
	_ = tx.Rollback()
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(err, cause)
	}
	return fmt.Errorf("commit of the handler's transaction: %w", err)
}

// settle stores what came of an attempt. Work that a shutdown or a lost lease
// has cut is not counted, whatever the handler made of it.
func (rt *route) settle(ctx, work context.Context, r *rows.Row, err error) {
	c := rt.group.c
	if err == nil {
		c.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: c.cfg.KeepDone})
		return
	}
	if work.Err() != nil || r.Tenure.Over() {
		c.desk.GiveBack(r)
		return
	}
	err = withCause(ctx, err)
	o := rt.outcome(r, err)
	if o.Kind != storage.Postpone {
		rt.log(ctx, r, o.Kind == storage.Fail, err)
	}
	c.desk.Settle(r, o)
}

// withCause says which limit it was that ended the context.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

func (rt *route) outcome(r *rows.Row, err error) storage.Outcome {
	how := asControl(err)
	switch {
	case how == nil:
		return rt.policy.Failed(r.Record, err.Error(), false, -1)
	case how.verb == reject:
		return rt.policy.Failed(r.Record, err.Error(), true, -1)
	case how.verb == retryAfter:
		return rt.policy.Failed(r.Record, err.Error(), false, how.wait)
	}
	return storage.Outcome{ID: r.ID, Kind: storage.Postpone, After: max(how.wait, time.Millisecond)}
}

func (rt *route) log(ctx context.Context, r *rows.Row, givenUp bool, err error) {
	attrs := []slog.Attr{
		slog.String("topic", r.Topic), slog.String("group", r.Group), slog.String("subscriber", r.Subscriber),
		slog.String("msg_id", r.MessageID), slog.Int("attempt", r.Retries+1), slog.Any("err", err),
	}
	if givenUp {
		rt.group.c.cfg.Log.Log.LogAttrs(ctx, slog.LevelError, "message not handled, given up", attrs...)
		return
	}
	rt.group.c.cfg.Log.Warn(ctx, "message not handled, trying again", r.Group+"\x00"+r.Subscriber, attrs...)
}
