package rows

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/internal/quiet"
	"github.com/capbus/gocap/storage"
)

// settleTimeout bounds one write; a database that hangs must not hang the
// engine, which tries again as long as the row is its own.
const settleTimeout = 10 * time.Second

// settlement is an outcome to be stored, and what follows.
type settlement struct {
	row     *Row
	outcome storage.Outcome
	early   bool // another outcome of the row may follow: not to be in one batch with it
	done    func(stored bool)
}

// settler writes outcomes in batches: what comes while one batch is written
// makes the next. It holds no more than the engine has in hand.
//
// What could not be written in time goes to late, one outcome at a time and in
// turns: a row that somebody has locked, such as a session of which its client
// knows nothing any more, must not keep all others from being written.
type settler struct {
	log   *quiet.Logger
	batch int
	wake  chan struct{}
	late  *settler // nil: it is the one of those that are late

	mu     sync.Mutex
	queue  []settlement
	closed bool // nothing more will come: run ends when the queue is empty
	ended  bool // run has ended: what comes all the same is not stored
}

func newSettler(log *quiet.Logger, batch int) *settler {
	return &settler{
		log: log, batch: batch, wake: make(chan struct{}, 1),
		late: &settler{log: log, batch: 1, wake: make(chan struct{}, 1)},
	}
}

func (s *settler) add(x settlement) {
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.queue = append(s.queue, x)
	}
	s.mu.Unlock()
	if ended {
		x.done(false)
		return
	}
	signal(s.wake)
}

func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	signal(s.wake)
}

func (s *settler) run(ctx context.Context) {
	defer s.end()
	if s.late != nil {
		var late sync.WaitGroup
		late.Go(func() { s.late.run(ctx) })
		defer late.Wait()
		defer s.late.close()
	}
	for {
		batch, closed := s.next()
		if len(batch) > 0 {
			s.write(ctx, batch)
			continue
		}
		if closed {
			return
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the longest run of outcomes of one tenure and kind, up to a batch.
func (s *settler) next() (batch []settlement, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.queue) && n < s.batch && s.queue[n].row.Tenure == s.queue[0].row.Tenure && s.queue[n].early == s.queue[0].early {
		n++
	}
	batch = s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return batch, s.closed
}

// write stores a batch. It tries again until it is stored, or late, the tenure is
// over (a settle under its number is then tried once more: it changes nothing
// when another has the row), or ctx ends.
func (s *settler) write(ctx context.Context, batch []settlement) {
	tenure := batch[0].row.Tenure
	outcomes := make([]storage.Outcome, len(batch))
	for i, x := range batch {
		outcomes[i] = x.outcome
	}
	wait := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		over := tenure.Over()
		wctx, cancel := context.WithTimeout(ctx, settleTimeout)
		lost, err := tenure.Settle(wctx, outcomes...)
		late := wctx.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			finish(batch, lost)
			return
		}
		s.log.Warn(ctx, "outcomes not stored, trying again", "", slog.Int("rows", len(batch)), slog.Any("err", err))
		if late && !over {
			s.later(batch)
			return
		}
		if over || !wait.Sleep(ctx) {
			for _, x := range batch {
				x.done(false)
			}
			return
		}
	}
}

func finish(batch []settlement, lost []storage.ID) {
	var gone map[storage.ID]bool
	for _, id := range lost {
		if gone == nil {
			gone = make(map[storage.ID]bool, len(lost))
		}
		gone[id] = true
	}
	for _, x := range batch {
		x.done(!gone[x.outcome.ID])
	}
}

// end drops what is queued, and what still comes: the rows are due as before.
func (s *settler) end() {
	s.mu.Lock()
	rest := s.queue
	s.queue, s.ended = nil, true
	s.mu.Unlock()
	for _, x := range rest {
		x.done(false)
	}
}

// later puts outcomes back, behind others that are late.
func (s *settler) later(batch []settlement) {
	to := s.late
	if to == nil {
		to = s
	}
	for _, x := range batch {
		to.add(x)
	}
}

// signal wakes the reader of c, unless it is awake already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
