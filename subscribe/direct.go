package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// direct is a delivery that is handled without an inbox.
type direct struct {
	transport.Retrier

	s *session
}

// failTimeout bounds one answer that the broker has to confirm.
const failTimeout = time.Minute

var errNobody = errors.New("no subscription takes it")

// nobody handles what matches no subscription: others of the group may have one.
func nobody(_ context.Context, m *transport.Message) error {
	if err := transport.CheckTopic(m.Topic); err != nil {
		return Reject(fmt.Errorf("message cannot be handled: %w", err))
	}
	return errNobody
}

// runDirect makes one attempt of a delivery and answers it.
func (rt *route) runDirect(work context.Context, r *rows.Row, d *direct) {
	if d.s.life.Err() != nil {
		d.giveBack()
		return
	}
	run := rt.group.beginRun(r)
	if run == nil {
		d.giveBack()
		return
	}
	defer rt.group.endRun(run)
	ctx, cancel := rt.context(work, d.s.life)
	defer cancel(nil)
	m := d.Message().Clone()
	m.ID = r.MessageID
	hctx, done := rt.handling(storage.ContextWithTx(ctx, rt.noInbox), r, m)
	err := errGoexit
	defer func() {
		done(err)
		d.finish(ctx, work, rt, r, err)
	}()
	err = rt.call(hctx, m)
}

func (rt *route) noInbox() (storage.Tx, error) {
	return nil, fmt.Errorf("group %q has no inbox, and so no inbox transaction (subscribe.BrokerRetry): "+
		"begin one of your own, or publish with cap.NoTx: %w", rt.group.name, storage.ErrNoTx)
}

// finish answers, and tells of a message that was set apart.
func (d *direct) finish(ctx, work context.Context, rt *route, r *rows.Row, err error) {
	parked, err := d.answer(ctx, work, rt, r, err)
	if f := rt.group.c.cfg.Callback; parked && f != nil {
		rec := *r.Record
		rec.Final, rec.Status, rec.Retries, rec.LastError = true, storage.Failed, r.Retries+1, err.Error()
		m := d.Message().Clone()
		m.ID = rec.MessageID
		f(work, &rec, m)
	}
}

// answer tells the broker what came of an attempt. Work that a shutdown or a
// lost receiver has cut is not counted, whatever the handler made of it.
func (d *direct) answer(ctx, work context.Context, rt *route, r *rows.Row, err error) (parked bool, reason error) {
	defer d.s.answered()
	if err == nil {
		if err := d.Ack(); err != nil { // delivered again
			d.warn(ctx, r, "delivery not acked", err)
		}
		return false, nil
	}
	if work.Err() != nil || d.s.life.Err() != nil {
		_ = d.Nack(0)
		return false, nil
	}
	err = withCause(ctx, err)
	how := asControl(err)
	if how != nil && how.verb == snooze {
		_ = d.Nack(min(max(how.wait, time.Millisecond), rt.group.source.Retry.Wait))
		return false, nil
	}
	fctx, cancel := context.WithTimeout(work, failTimeout)
	defer cancel()
	var told error
	if how != nil && how.verb == reject {
		parked, told = true, d.Park(fctx, err)
	} else {
		parked, told = d.Fail(fctx, err)
	}
	if told != nil {
		d.warn(ctx, r, "failed attempt not told to the broker, it comes again", errors.Join(err, told))
		return false, err
	}
	rt.log(ctx, r, parked, err)
	return parked, err
}

func (d *direct) warn(ctx context.Context, r *rows.Row, msg string, err error) {
	d.s.g.c.cfg.Log.Warn(ctx, msg, r.Group, slog.String("topic", r.Topic), slog.String("group", r.Group),
		slog.String("msg_id", r.MessageID), slog.Any("err", err))
}

// giveBack is for what was not worked on: no attempt is counted.
func (d *direct) giveBack() {
	defer d.s.answered()
	_ = d.Nack(0) // a receiver that is lost has given it back
}
