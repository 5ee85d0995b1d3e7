package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/internal/wire"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/transport"
)

const (
	senders  = 16 // batches on the wire at once
	perTopic = 4  // of one topic, so that one that hangs leaves room for others

	// maxWaiting is the most rows that wait in hand for their callback, or to be
	// tried alone.
	maxWaiting = 100
)

// suspects is how many rows of dead instances are on the wire at once. If this
// process dies too, so many are then sent one by one.
const suspects = 32

// DispatcherConfig configures a Dispatcher. All fields but Callback and Also are
// required.
type DispatcherConfig struct {
	Transport transport.Transport
	Log       *quiet.Logger
	Policy    rows.Policy
	// Callback is made for a message that failed for good.
	Callback func(ctx context.Context, rec *storage.Record, m *transport.Message)
	// KeepSent is how long a sent row stays; negative: it is deleted at once.
	KeepSent        time.Duration
	AllowUnroutable bool
	// SendWindow is the most rows in hand (two looks that meet may exceed it once),
	// and once more as many with a key; BatchSize is the most in one Send.
	SendWindow, BatchSize int
	// SendTimeout bounds one Send.
	SendTimeout time.Duration
	// Trace may be nil.
	Trace *Trace
	// Locked is as in NeedRetryConfig.
	Locked bool
	// Probation is how long this process must have lived before it sends rows
	// that saw two deaths or more.
	Probation time.Duration
	// Also own rows of other versions that this dispatcher sends, too; may be
	// empty. They share the pulse of the keeper.
	Also []*rows.Keeper
}

// Dispatcher sends the rows of the outbox that it is given.
type Dispatcher struct {
	cfg     DispatcherConfig
	desk    *rows.Desk
	queue   *rows.Queue[string] // by topic
	keeper  *rows.Keeper
	breaker *breaker
	freed   chan struct{}
	retry   *NeedRetry
	order   *Order
	keyed   atomic.Int64 // rows in hand that have a key
	keyFree chan struct{}
	bytes   atomic.Int64  // of headers and bodies in hand
	nobody  *quiet.Logger // of topics that no queue takes

	mu     sync.Mutex
	topics map[string]int // rows in hand
}

// NewDispatcher returns a Dispatcher and the NeedRetry that feeds it; the Run
// of each does the work.
func NewDispatcher(cfg DispatcherConfig, keeper *rows.Keeper, poll time.Duration) (*Dispatcher, *NeedRetry) {
	d := &Dispatcher{cfg: cfg, keeper: keeper, freed: make(chan struct{}, 1), keyFree: make(chan struct{}, 1), topics: map[string]int{}}
	d.nobody = &quiet.Logger{Log: cfg.Log.Log, Every: time.Minute}
	d.queue = rows.NewQueue(func(string) int { return perTopic })
	dc := rows.Config{
		Log: cfg.Log, Policy: cfg.Policy, Batch: cfg.BatchSize, Suspects: suspects, Probation: cfg.Probation,
		Waiting: max(1, min(maxWaiting, cfg.SendWindow/8)),
		Start:   func(r *rows.Row) { d.queue.Add(r.Topic, r) }, Freed: d.onFreed, Settled: cfg.Trace.settled(cfg.Log),
		Later: func(in time.Duration, passed bool) { d.retry.Later(in, passed) },
	}
	if cfg.Callback != nil {
		dc.Callback = d.callback
	}
	d.desk = rows.NewDesk(dc)
	keeper.Pulse().Many = senders
	for _, k := range d.keepers() {
		k.Ask([]storage.Lane{{}}, nil)
	}
	d.retry = NewNeedRetry(NeedRetryConfig{
		Keeper: keeper, Hand: &d.desk.Hand, Taker: d, Log: cfg.Log,
		PollInterval: poll, BatchSize: cfg.BatchSize, MaxBytes: rows.MaxLookBytes, Locked: cfg.Locked, TakenOver: cfg.Trace.takenOver(cfg.Log),
	})
	d.order = NewOrder(OrderConfig{
		Keeper: keeper, Hand: &d.desk.Hand, Taker: d, Log: cfg.Log,
		PollInterval: poll, BatchSize: cfg.BatchSize, MaxBytes: rows.MaxLookBytes,
	})
	d.desk.Order(d.order)
	check := func(ctx context.Context) error {
		defer keeper.Pulse().Enter(ctx, "asking whether the broker is back")()
		return cfg.Transport.Check(ctx)
	}
	d.breaker = newBreaker(check, cfg.Log.Log, d.brokerAway, d.brokerBack)
	return d, d.retry
}

// Hand is what this dispatcher has in hand.
func (d *Dispatcher) Hand() *rows.Hand { return &d.desk.Hand }

// Run takes rows until take ends, sends on the context work, and stores outcomes
// until last ends; then it has finished. Each is to end no earlier than the one
// before.
func (d *Dispatcher) Run(take, work, last context.Context) {
	var loops, desk sync.WaitGroup
	desk.Go(func() { d.desk.Run(work, last) })
	loops.Go(func() { d.breaker.run(take) })
	for range senders {
		loops.Go(func() { d.send(take, work) })
	}
	<-take.Done()
	d.desk.Drain()
	for _, r := range d.queue.Empty() {
		d.desk.GiveBack(r)
	}
	loops.Wait()
	d.desk.Close()
	desk.Wait()
}

// Room implements Taker: nothing is taken while the breaker is open, and new
// rows are looked for when a quarter of the window is free.
func (d *Dispatcher) Room() []storage.Lane {
	free := d.free() - d.reserve()
	if free < max(1, d.cfg.SendWindow/4) {
		return nil
	}
	return []storage.Lane{{Limit: free}}
}

// free is how many rows more may be in hand.
func (d *Dispatcher) free() int {
	if d.bytes.Load() > rows.MaxHandBytes || d.breaker.isOpen() || d.desk.Draining() {
		return 0
	}
	return d.cfg.SendWindow - (d.desk.Hand.Len() - int(d.keyed.Load()))
}

// reserve is the part of the window that a backlog cannot fill: it is for rows
// that were just committed, of topics that have few in hand, so that a topic
// whose consumers are slow does not hold up the others.
func (d *Dispatcher) reserve() int { return d.cfg.SendWindow / 8 }

// wants reports whether a row that was just committed is taken.
func (d *Dispatcher) wants(rec *storage.Record) bool {
	if d.free() > d.reserve() {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.topics[rec.Topic] < max(1, d.reserve()/4)
}

// Admit implements Taker.
func (d *Dispatcher) Admit(t *rows.Tenure, recs []*storage.Record) {
	d.mu.Lock()
	for _, rec := range recs {
		d.bytes.Add(rows.Size(rec))
		d.topics[rec.Topic]++
		if rec.Key != "" {
			d.keyed.Add(1)
		}
	}
	d.mu.Unlock()
	d.desk.Admit(t, false, recs...)
}

func (d *Dispatcher) onFreed(rs []*rows.Row) {
	d.mu.Lock()
	for _, r := range rs {
		if r.Key != "" {
			d.keyed.Add(-1)
			signal(d.keyFree)
		}
		d.bytes.Add(-rows.Size(r.Record))
		if d.topics[r.Topic]--; d.topics[r.Topic] == 0 {
			delete(d.topics, r.Topic)
		}
	}
	d.mu.Unlock()
	signal(d.freed)
}

// Freed implements Taker.
func (d *Dispatcher) Freed() <-chan struct{} { return d.freed }

// send takes batches until next ends; what it has begun it finishes on work.
func (d *Dispatcher) send(next, work context.Context) {
	for {
		topic, batch, ok := d.queue.Next(next, d.cfg.BatchSize)
		if !ok {
			return
		}
		leave := d.keeper.Pulse().EnterOne(d.cfg.SendTimeout, "sending of topic "+topic)
		d.sendBatch(work, batch)
		leave()
		d.queue.Done(topic)
	}
}

func (d *Dispatcher) sendBatch(work context.Context, batch []*rows.Row) {
	if d.breaker.isOpen() || batch[0].Tenure.Over() {
		for _, r := range batch {
			d.desk.GiveBack(r)
		}
		return
	}
	var good []*rows.Row
	var msgs []*transport.Message
	for _, r := range batch {
		m, err := message(r.Record)
		if err != nil {
			d.desk.Settle(r, d.cfg.Policy.Failed(r.Record, err.Error(), true, -1))
			continue
		}
		good, msgs = append(good, r), append(msgs, m)
	}
	if len(good) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(work, d.cfg.SendTimeout)
	defer cancel()
	defer context.AfterFunc(batch[0].Tenure.Context(), cancel)()
	sending, done := d.cfg.Trace.send(ctx, d.cfg.Log, msgs)
	errs := d.call(sending, msgs)
	done(errs)
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded) && work.Err() == nil
	for i, r := range good {
		if timedOut && errors.Is(errs[i], transport.ErrUnavailable) {
			errs[i] = fmt.Errorf("no answer of the broker within %s", d.cfg.SendTimeout) // counts as an attempt
		}
		d.settle(work, r, errs[i])
	}
}

// call sends, and turns a panic or a wrong number of answers into an unknown
// outcome of every message.
func (d *Dispatcher) call(ctx context.Context, msgs []*transport.Message) (errs []error) {
	defer func() {
		var err error
		if p := recover(); p != nil {
			err = fmt.Errorf("transport panicked: %v", p)
			d.cfg.Log.Log.LogAttrs(ctx, slog.LevelError, "transport panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		} else if len(errs) != len(msgs) {
			err = fmt.Errorf("transport answered %d of %d messages", len(errs), len(msgs))
		}
		if err != nil {
			errs = make([]error, len(msgs))
			for i := range errs {
				errs[i] = err
			}
		}
	}()
	errs = d.cfg.Transport.Send(ctx, msgs)
	for _, err := range errs {
		if err != nil {
			_ = err.Error() // one that panics does so here
		}
	}
	return errs
}

func (d *Dispatcher) settle(work context.Context, r *rows.Row, err error) {
	switch {
	case err == nil:
		d.breaker.sent()
		d.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: d.cfg.KeepSent})
	case work.Err() != nil || r.Tenure.Over() || d.desk.Draining() && errors.Is(err, transport.ErrUnavailable):
		d.desk.GiveBack(r)
	case errors.Is(err, transport.ErrUnavailable):
		if d.breaker.trip(work, err) {
			d.cfg.Trace.breaker(work, d.cfg.Log, err)
		}
		d.desk.GiveBack(r)
	case errors.Is(err, transport.ErrBusy):
		d.cfg.Log.Warn(work, "consumers are busy, message kept", r.Topic, slog.String("topic", r.Topic), slog.Any("err", err))
		d.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Postpone, After: busyWait})
	case errors.Is(err, transport.ErrUnroutable):
		d.unroutable(work, r, err)
	default:
		o := d.cfg.Policy.Failed(r.Record, err.Error(), errors.Is(err, transport.ErrPermanent), -1)
		d.failed(work, r, o, err)
		d.desk.Settle(r, o)
	}
}

// busyWait puts a message whose consumers are busy behind those that are due.
const busyWait = time.Second

// maxUnroutableWait is the longest wait between two tries of a message that no
// queue takes.
const maxUnroutableWait = 5 * time.Minute

// unroutable costs no attempt. The wait grows with the age of the row, and the
// row fails for good only when a failed row would expire.
func (d *Dispatcher) unroutable(ctx context.Context, r *rows.Row, err error) {
	if d.cfg.AllowUnroutable {
		d.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: d.cfg.KeepSent})
		return
	}
	d.nobody.Warn(ctx, "no queue takes the topic, message kept", r.Topic, slog.String("topic", r.Topic), slog.Any("err", err))
	if r.Age >= d.cfg.Policy.KeepFailed {
		d.desk.Settle(r, d.cfg.Policy.Final(r.Record, err.Error(), false))
		return
	}
	wait := max(d.cfg.Policy.Interval, min(r.Age, maxUnroutableWait))
	d.desk.Settle(r, storage.Outcome{ID: r.ID, Kind: storage.Retry, After: wait, Error: err.Error()})
}

func (d *Dispatcher) failed(ctx context.Context, r *rows.Row, o storage.Outcome, err error) {
	if o.Kind == storage.Fail {
		d.cfg.Log.Log.LogAttrs(ctx, slog.LevelError, "message not sent, given up", slog.String("topic", r.Topic),
			slog.String("msg_id", r.ID.String()), slog.Int("attempt", r.Retries+1), slog.Any("err", err))
		return
	}
	d.cfg.Log.Warn(ctx, "message not sent, trying again", r.Topic, slog.String("topic", r.Topic),
		slog.String("msg_id", r.ID.String()), slog.Int("attempt", r.Retries+1), slog.Any("err", err))
}

func (d *Dispatcher) callback(ctx context.Context, r *rows.Row) {
	m, err := message(r.Record)
	if err != nil {
		m = &transport.Message{ID: r.ID.String(), Topic: r.Topic, Body: r.Body}
	}
	d.cfg.Callback(ctx, r.Record, m)
}

// message is the mapping from a row of the outbox to what is sent.
func message(rec *storage.Record) (*transport.Message, error) {
	h, err := wire.DecodeHeaders(rec.Headers)
	if err != nil {
		return nil, fmt.Errorf("stored headers cannot be read: %w", err)
	}
	return &transport.Message{ID: rec.ID.String(), Topic: rec.Topic, Headers: h, Body: rec.Body}, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
