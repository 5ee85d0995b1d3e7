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
	desk := rt.group.c.desk
	if r.Tenure.Over() {
		desk.GiveBack(r)
		return
	}
	ctx, cancel := rt.context(work, r)
	defer cancel(nil)
	m := message(r.Record)
	inbox := &inboxTx{places: rt.group.c.places, ctx: ctx, cancel: cancel}
	hctx := storage.ContextWithTx(ctx, inbox.get)
	info := Info{Message: m, Group: r.Group, Subscriber: r.Subscriber, Attempt: r.Retries + 1}
	hctx = contextWithInfo(hctx, info)
	if f := rt.group.c.cfg.Context; f != nil {
		hctx = f(hctx)
	}
	hctx, done := rt.group.c.cfg.Trace.handle(hctx, rt.group.c.cfg.Log, info)
	err := errGoexit
	defer func() {
		done(err)
		rt.finish(ctx, work, r, inbox, err)
	}()
	err = rt.call(hctx, m)
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

// context is the context of one attempt.
func (rt *route) context(work context.Context, r *rows.Row) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(work)
	stop := context.AfterFunc(r.Tenure.Context(), func() { cancel(rows.ErrLeaseLost) })
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

// call runs the handler. A panic is a failed attempt.
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
	}
	return err
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
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause) // says which limit it was
	}
	o := rt.outcome(r, err)
	rt.log(ctx, r, o, err)
	c.desk.Settle(r, o)
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

func (rt *route) log(ctx context.Context, r *rows.Row, o storage.Outcome, err error) {
	attrs := []slog.Attr{
		slog.String("topic", r.Topic), slog.String("group", r.Group), slog.String("subscriber", r.Subscriber),
		slog.String("msg_id", r.MessageID), slog.Int("attempt", r.Retries+1), slog.Any("err", err),
	}
	switch o.Kind {
	case storage.Fail:
		rt.group.c.cfg.Log.Log.LogAttrs(ctx, slog.LevelError, "message not handled, given up", attrs...)
	case storage.Retry:
		rt.group.c.cfg.Log.Warn(ctx, "message not handled, trying again", r.Group+"\x00"+r.Subscriber, attrs...)
	}
}
