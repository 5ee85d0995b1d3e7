package cap

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

// Tx is the caller's transaction: what the storage accepts. With gormstore that
// is a *gorm.DB inside a transaction, a *sql.Tx, or a type that embeds one.
//
// nil, a nil pointer too, stands for the transaction that the context carries:
// that of ContextWithTx, or the inbox transaction of the handler that runs. If
// it carries none, that is ErrNoTx. To publish without a transaction, say NoTx.
type Tx = any

type noTx struct{}

// NoTx publishes in a transaction of the storage's own: the row is committed
// when Publish returns.
var NoTx Tx = noTx{}

// Publisher is what a service should depend on. *Bus is one.
type Publisher interface {
	Publish(ctx context.Context, tx Tx, topic string, msg any, opts ...PublishOption) error
}

// Outgoing is one message of PublishMany.
type Outgoing struct {
	Topic string
	Msg   any
	Opts  []PublishOption
}

// Publish is Bus.Publish on the bus whose handler runs with ctx, else on the
// default one. Error: ErrNoBus, or as Bus.Publish.
func Publish(ctx context.Context, tx Tx, topic string, msg any, opts ...PublishOption) error {
	b, err := busFrom(ctx)
	if err != nil {
		return fmt.Errorf("cap: publish %s: %w", topic, err)
	}
	return b.Publish(ctx, tx, topic, msg, opts...)
}

// PublishMany is Bus.PublishMany on the bus whose handler runs with ctx, else on
// the default one. Error: ErrNoBus, or as Bus.PublishMany.
func PublishMany(ctx context.Context, tx Tx, msgs ...Outgoing) error {
	b, err := busFrom(ctx)
	if err != nil {
		return fmt.Errorf("cap: publish: %w", err)
	}
	return b.PublishMany(ctx, tx, msgs...)
}

// Publish writes a message into the outbox, in the transaction tx. It leaves
// after the commit; a rollback takes it back. Publish needs a storage with its
// tables, not a running bus: whoever runs next on these tables sends the
// message. It may be called concurrently.
//
// The codec makes the body out of msg. JSON, the default, makes a base64 string
// of a []byte (transport.Bytes leaves it as it is: WithCodec); JSON that is ready
// is a json.RawMessage, whose bytes are the body. A *Message is refused: to pass
// one on, publish its Body so.
//
// Errors: a value that cannot be published (topic, options, body), ErrNoTx,
// *TxTypeError, a transaction that has ended, ErrDuplicate, or that of the
// database. Where no SQL ran, and with ErrDuplicate, tx stays usable.
func (b *Bus) Publish(ctx context.Context, tx Tx, topic string, msg any, opts ...PublishOption) error {
	return b.PublishMany(ctx, tx, Outgoing{Topic: topic, Msg: msg, Opts: opts})
}

// PublishMany is as Publish, but writes all messages with one statement: all of
// them or none.
func (b *Bus) PublishMany(ctx context.Context, tx Tx, msgs ...Outgoing) error {
	if err := b.publish(ctx, tx, msgs); err != nil {
		if len(msgs) == 1 {
			return fmt.Errorf("cap: publish %s: %w", msgs[0].Topic, err)
		}
		return fmt.Errorf("cap: publish %d messages: %w", len(msgs), err)
	}
	return nil
}

func (b *Bus) publish(ctx context.Context, tx Tx, msgs []Outgoing) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return err
	}
	if carried := ctx.Value(txKey{}); isNil(tx) && !isNil(carried) {
		tx = carried
	}
	owner := b.owner()
	recs := make([]*storage.Record, len(msgs))
	written := processor.Written{Owner: owner}
	for i, m := range msgs {
		rec, err := b.record(ctx, m, owner)
		if err != nil && len(msgs) > 1 {
			err = fmt.Errorf("message %d (%s): %w", i, m.Topic, err)
		}
		if err != nil {
			return err
		}
		recs[i] = rec
		switch wait := untilDue(rec); {
		case wait > 0:
			b.expect(wait)
		case rec.Key != "":
			written.Keys = append(written.Keys, rec.Key)
		default:
			written.IDs = append(written.IDs, rec.ID)
		}
	}
	if _, own := tx.(noTx); own {
		return b.publishNow(ctx, recs, written)
	}
	w, err := b.writer(ctx, tx)
	if err != nil {
		return err
	}
	if err := w.Append(ctx, recs...); err != nil {
		return err
	}
	b.watch(w, written)
	return nil
}

// untilDue is how long a record waits, by this process's clock: it tells when to
// look, the database's clock decides.
func untilDue(rec *storage.Record) time.Duration {
	if rec.DueAt.IsZero() {
		return rec.Delay
	}
	return time.Until(rec.DueAt)
}

// publishNow writes the records in a transaction of their own.
func (b *Bus) publishNow(ctx context.Context, recs []*storage.Record, written processor.Written) error {
	tx, err := b.opts.Storage.Begin(ctx)
	if err != nil {
		return err
	}
	err = tx.Append(ctx, recs...)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		_ = tx.Rollback() // the first error says more
		return err
	}
	b.committed(written)
	return nil
}

// writer finds the transaction: tx, else the inbox transaction of the handler
// that runs on this bus.
func (b *Bus) writer(ctx context.Context, tx Tx) (storage.Writer, error) {
	if !isNil(tx) {
		return b.opts.Storage.Bind(tx)
	}
	if ctx.Value(busKey{}) == b {
		if inbox, err := storage.TxFromContext(ctx); !errors.Is(err, storage.ErrNoTx) {
			return inbox, err
		}
	}
	given := "nil"
	if tx != nil {
		given = fmt.Sprintf("a nil %T", tx)
	}
	return nil, fmt.Errorf("%w: the transaction is %s, and the context carries none; give the transaction, or cap.NoTx to publish without one", ErrNoTx, given)
}

// record checks a message and makes its row.
func (b *Bus) record(ctx context.Context, m Outgoing, owner int64) (*storage.Record, error) {
	topic := m.Topic
	if b.opts.TopicNamePrefix != "" && topic != "" {
		topic = b.opts.TopicNamePrefix + "." + topic
	}
	if err := b.checkTopic(topic); err != nil {
		return nil, err
	}
	o := publishOptions{id: ids.New()}
	for _, opt := range m.Opts {
		if opt == nil {
			return nil, errors.New("a PublishOption is nil")
		}
		opt(&o)
	}
	if o.delay > 0 && !o.dueAt.IsZero() {
		o.fail("WithDelay and WithDueAt exclude each other")
	}
	if o.key != "" && (o.delay > 0 || !o.dueAt.IsZero()) {
		o.fail("WithKey excludes WithDelay and WithDueAt: one delayed message would hold up all that follow with its key")
	}
	if len(o.headers) > b.opts.MaxHeaders {
		o.fail("message has %d headers; at most %d are allowed (Options.MaxHeaders)", len(o.headers), b.opts.MaxHeaders)
	}
	if len(o.errs) > 0 {
		return nil, errors.Join(o.errs...)
	}
	if o.codec == nil {
		o.codec = b.opts.Codec
	}
	body, err := b.encode(m.Msg, o.codec)
	if err != nil {
		return nil, err
	}
	headers := o.headersOf(o.id, topic, typeName(m.Msg), time.Now())
	if err := b.tracePublish(ctx, &transport.Message{ID: o.id.String(), Topic: topic, Headers: headers, Body: body}); err != nil {
		return nil, err
	}
	return &storage.Record{
		ID: o.id, GivenID: o.given, Version: b.opts.Version, Topic: topic, Owner: owner,
		Headers: wire.EncodeHeaders(headers), Body: body, Delay: o.delay, DueAt: o.dueAt, Key: o.key,
	}, nil
}

// tracePublish lets the hook add headers, and checks them.
func (b *Bus) tracePublish(ctx context.Context, m *transport.Message) error {
	if b.opts.SendTrace == nil {
		return nil
	}
	processor.TracePublish(ctx, b.opts.SendTrace, b.log, m)
	for key, value := range m.Headers {
		if err := checkHeader(key, value); err != nil {
			return fmt.Errorf("trace hook Publish: %w", err)
		}
	}
	return nil
}

func (b *Bus) checkTopic(topic string) error {
	if err := transport.CheckTopic(topic); err != nil {
		return err
	}
	if b.opts.Transport == nil {
		return nil
	}
	if t := b.opts.Transport.Traits(); t.MaxTopic > 0 && len(topic) > t.MaxTopic {
		return fmt.Errorf("topic has %d bytes; transport %s allows %d", len(topic), t.Name, t.MaxTopic)
	}
	return nil
}

// encode makes the body. A panic of a type's own encoder is an error.
func (b *Bus) encode(msg any, codec transport.Codec) (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("encode %T: panic: %v", msg, p)
		}
	}()
	switch m := msg.(type) {
	case *Message, Message:
		return nil, fmt.Errorf("%T is not a value to publish; to pass a message on, give json.RawMessage(m.Body)", msg)
	case wire.Raw:
		body = m.Body
	default:
		body, err = codec.Encode(msg)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", msg, err)
	}
	limit, by := b.opts.MaxBodySize, "Options.MaxBodySize"
	if b.opts.Transport != nil {
		if t := b.opts.Transport.Traits(); t.MaxMessage > 0 && t.MaxMessage < limit {
			limit, by = t.MaxMessage, "transport "+t.Name
		}
	}
	if len(body) > limit {
		return nil, fmt.Errorf("body has %d bytes; at most %d are allowed (%s)", len(body), limit, by)
	}
	return body, nil
}

func checkHeader(key, value string) error {
	switch {
	case key == "" || len(key) > transport.MaxTopicBytes:
		return fmt.Errorf("a header name has %d bytes; 1 to %d are allowed", len(key), transport.MaxTopicBytes)
	case !utf8.ValidString(key) || !utf8.ValidString(value) || strings.ContainsRune(key+value, 0):
		return fmt.Errorf("header %q is not valid UTF-8 without NUL", key)
	}
	return nil
}

// typeName is the name of the value's type without its package.
func typeName(v any) string {
	if v == nil {
		return ""
	}
	if raw, ok := v.(wire.Raw); ok {
		return raw.Type
	}
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if i := strings.IndexByte(name, '['); i > 0 {
		name = name[:i] // type arguments carry package paths
	}
	return name
}

// isNil reports whether v is nil or a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice:
		return r.IsNil()
	}
	return false
}
