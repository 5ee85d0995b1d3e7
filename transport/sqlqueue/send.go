package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/capbus/gocap/transport"
)

const (
	// maxRows and maxBytes bound one statement that sends.
	maxRows  = 500
	maxBytes = 8 << 20
	// maxTries bounds how often a Send reads the bindings because they have
	// changed: each time somebody has declared something.
	maxTries = 10
)

// sending is a message of a Send and its outcome.
type sending struct {
	msg *transport.Message
	err error
}

// Send stores messages, with a delivery for each group that takes the topic, some
// hundreds in a statement. What is stored when it returns nil is committed. A
// topic that no group takes is transport.ErrUnroutable. The same id sent twice is
// two messages.
func (t *Transport) Send(ctx context.Context, msgs []*transport.Message) []error {
	all := make([]*sending, len(msgs))
	var good []*sending
	for i, m := range msgs {
		all[i] = &sending{msg: m, err: t.check(m)}
		if all[i].err == nil {
			good = append(good, all[i])
		}
	}
	for len(good) > 0 {
		n := portion(good)
		t.send(ctx, good[:n])
		good = good[n:]
	}
	errs := make([]error, len(all))
	for i, s := range all {
		errs[i] = s.err
	}
	return errs
}

// portion is how many of them one statement takes.
func portion(all []*sending) int {
	bytes := 0
	for i, s := range all {
		bytes += len(s.msg.Body)
		if i == maxRows || i > 0 && bytes > maxBytes {
			return i
		}
	}
	return len(all)
}

func (t *Transport) check(m *transport.Message) error {
	switch err := transport.CheckTopic(m.Topic); {
	case err != nil:
		return refused(err)
	case !isText(m.ID):
		return refused(fmt.Errorf("id %q is not valid UTF-8 without NUL", m.ID))
	case len(m.Body) > t.cfg.MaxMessageBytes:
		return refused(fmt.Errorf("body has %d bytes; at most %d are allowed (Config.MaxMessageBytes)", len(m.Body), t.cfg.MaxMessageBytes))
	}
	for k, v := range m.Headers {
		if !isText(k) || !isText(v) {
			return refused(fmt.Errorf("header %q is not valid UTF-8 without NUL", k))
		}
	}
	return nil
}

// send gives each message of a portion its outcome.
func (t *Transport) send(ctx context.Context, all []*sending) {
	err := t.ready(ctx)
	if err == nil {
		err = t.store(ctx, all)
	}
	switch {
	case err == nil:
	case ofTheData(err) && len(all) > 1:
		half := len(all) / 2
		t.send(ctx, all[:half])
		t.send(ctx, all[half:])
	case ofTheData(err):
		all[0].err = refused(err)
	default:
		for _, s := range all {
			s.err = unavailable(err)
		}
	}
}

// store writes them. Without an error, each has its outcome.
func (t *Transport) store(ctx context.Context, all []*sending) error {
	msgs := make([]*transport.Message, len(all))
	for i, s := range all {
		msgs[i] = s.msg
	}
	for try := range maxTries {
		groups, generation, err := t.routesOf(ctx, t.version, msgs, try > 0)
		if err != nil {
			return err
		}
		in := insertion{schema: schema{t.tables}, generation: generation}
		woken := map[int64]struct{}{}
		for i, m := range msgs {
			all[i].err = nil
			if len(groups[i]) == 0 {
				all[i].err = errUnroutable(m.Topic)
				continue
			}
			in.msgs, in.groups = append(in.msgs, m), append(in.groups, groups[i])
			for _, g := range groups[i] {
				woken[g] = struct{}{}
			}
		}
		done, err := t.insert(ctx, in)
		if err != nil {
			return err
		}
		if done {
			t.wake(woken)
			return nil
		}
	}
	return errUnsettled
}

// insert reports false if the bindings are of another generation: nothing is
// stored then.
func (t *Transport) insert(ctx context.Context, in insertion) (bool, error) {
	if len(in.msgs) == 0 {
		now, err := t.generation(ctx)
		return now == in.generation, err
	}
	deliveries, written := 0, int64(0)
	msgs := make([]*message.Message, len(in.msgs))
	for i, m := range in.msgs {
		msgs[i] = message.NewMessage(m.ID, m.Body)
		msgs[i].Metadata = m.Headers
		deliveries += len(in.groups[i])
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	// Watermill's Publisher runs its statement without a context, and does not
	// tell how many rows it wrote.
	p, err := wmsql.NewPublisher(executor{t.db, func(query string, args []any) (sql.Result, error) {
		res, err := t.db.ExecContext(ctx, query, args...)
		if err == nil {
			written, err = res.RowsAffected()
		}
		return res, t.failed(err)
	}}, wmsql.PublisherConfig{SchemaAdapter: in}, nil)
	if err == nil {
		err = p.Publish(queue, msgs...)
	}
	if err != nil || written == 0 {
		return false, err
	}
	if written != int64(deliveries) {
		return false, fmt.Errorf("%d deliveries were written, not %d", written, deliveries)
	}
	return true, nil
}

// executor is a pool whose ExecContext is a function.
type executor struct {
	*sql.DB

	exec func(query string, args []any) (sql.Result, error)
}

func (e executor) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return e.exec(query, args)
}

// Publish implements message.Publisher of Watermill: it returns when all messages
// are stored, or an error that joins what became of the others and names their
// ids. A message's context ends the wait for all of the call.
func (t *Transport) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(messages[0].Context()))
	defer cancel(nil)
	msgs := make([]*transport.Message, len(messages))
	for i, m := range messages {
		mctx := m.Context()
		defer context.AfterFunc(mctx, func() { cancel(context.Cause(mctx)) })()
		msgs[i] = &transport.Message{ID: m.UUID, Topic: topic, Headers: m.Metadata, Body: m.Payload}
	}
	var errs []error
	for i, err := range t.Send(ctx, msgs) {
		if err != nil {
			errs = append(errs, fmt.Errorf("message %s: %w", messages[i].UUID, err))
		}
	}
	return errors.Join(errs...)
}
