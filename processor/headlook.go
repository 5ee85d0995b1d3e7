package processor

import (
	"context"
	"time"

	"github.com/capbus/gocap/internal/rows"
	"github.com/capbus/gocap/storage"
)

// asked looks at the keys whose time has come, as far as there is room. It takes
// what it has used off the room.
func (o *Order) asked(ctx context.Context, t *rows.Tenure, lanes []KeyLane) error {
	for i := range lanes {
		l := &lanes[i]
		key := laneKey{l.Group, l.Subscriber}
		o.mu.Lock()
		var list []*ask
		if s := o.lanes[key]; s != nil {
			list = s.asks.due(time.Now(), min(l.Limit, o.cfg.BatchSize))
		}
		o.mu.Unlock()
		if len(list) == 0 {
			continue
		}
		q := storage.HeadQuery{Group: l.Group, Subscriber: l.Subscriber}
		for _, a := range list {
			q.Keys = append(q.Keys, a.key)
		}
		found, err := o.look(ctx, t, l, q, untried(list))
		o.askAgain(key, list, found, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// untried are the keys whose heads no dead owner can have tried: at its death
// they were behind another.
func untried(list []*ask) map[string]bool {
	keys := map[string]bool{}
	for _, a := range list {
		if a.next {
			keys[a.key] = true
		}
	}
	return keys
}

// askAgain puts back those of which a later look is wanted.
func (o *Order) askAgain(lane laneKey, list []*ask, found map[string]finding, err error) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state(lane)
	for _, a := range list {
		if _, busy := s.busy[a.key]; busy {
			continue // asked again when its row is final
		}
		next, again := *a, true
		f, some := found[a.key]
		switch {
		case err != nil || f.what == noRoom:
		case !some && a.missing:
			next, again = a.again(now, 0, a.most)
		case f.what == foreign:
			next, again = a.again(now, foreignFirst, foreignLast)
		case f.what == notYet:
			next.at, next.next = f.at, false
		default:
			again = false
		}
		if again {
			s.asks.put(next)
		}
	}
}

// scan reads a page of each lane that is not read to its end.
func (o *Order) scan(ctx context.Context, t *rows.Tenure, lanes []KeyLane) error {
	if len(o.cursors) == 0 {
		return nil
	}
	begun := time.Now()
	there := map[laneKey]bool{}
	for i := range lanes {
		l := &lanes[i]
		key := laneKey{l.Group, l.Subscriber}
		there[key] = true
		after, some := o.cursors[key]
		if !some || l.Limit <= 0 {
			continue
		}
		found, err := o.look(ctx, t, l, storage.HeadQuery{Group: l.Group, Subscriber: l.Subscriber, After: after, Limit: o.cfg.BatchSize}, nil)
		if err != nil {
			return err
		}
		o.proceed(key, found)
	}
	for key := range o.cursors {
		if !there[key] {
			delete(o.cursors, key)
		}
	}
	o.spent += time.Since(begun)
	if len(o.cursors) == 0 {
		o.end()
	}
	return nil
}

// proceed moves the cursor of a lane to the last key before the first one that
// there was no room for, and expects rows that will be due.
func (o *Order) proceed(lane laneKey, found map[string]finding) {
	last, stop := o.cursors[lane], ""
	for key, f := range found {
		if f.what == noRoom && (stop == "" || key < stop) {
			stop = key
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state(lane)
	for key, f := range found {
		if stop != "" && key >= stop {
			continue
		}
		last = max(last, key)
		if f.what == notYet {
			s.asks.put(ask{key: key, at: f.at})
		}
	}
	if stop == "" && len(found) < o.cfg.BatchSize {
		delete(o.cursors, lane)
		return
	}
	o.cursors[lane] = last
}

// finding is what a look has found of a key.
type finding struct {
	what what
	at   time.Time // notYet: when
}

type what uint8

const (
	taken   what = iota // its row is in hand, or was not there any more
	foreign             // another living instance works on it
	notYet              // its row is this instance's, and will be due
	noRoom              // its row could be taken
)

// look reads heads and takes those that can be worked on now: this instance's
// own, and those of nobody who lives. See untried.
func (o *Order) look(ctx context.Context, t *rows.Tenure, l *KeyLane, q storage.HeadQuery, untried map[string]bool) (map[string]finding, error) {
	ctx, cancel := lookContext(ctx, t)
	defer cancel()
	look := o.cfg.Hand.Begin()
	defer look.End()
	heads, err := t.Heads(ctx, q)
	if err != nil {
		return nil, err
	}
	found, own, orphans := o.sort(t.Number(), l, heads)
	var recs []*storage.Record
	if len(own) > 0 {
		if recs, _, err = t.Due(ctx, storage.Query{IDs: own}); err != nil {
			return nil, err
		}
	}
	if len(orphans) > 0 {
		more, err := t.TakeOver(ctx, storage.Query{IDs: orphans}) // no lock: by id, rows are taken by whoever comes first
		if err != nil {
			return nil, err
		}
		recs = append(recs, more...)
	}
	var admitted []*storage.Record
	o.mu.Lock()
	s := o.state(laneKey{l.Group, l.Subscriber})
	for _, rec := range recs {
		if rec.Key != "" && !rec.Final && look.Take(rec.ID) {
			s.busy[rec.Key] = rec.ID
			if rec.Takeovers == 1 && untried[rec.Key] {
				rec.Takeovers = 0 // starts at once, as one that nobody has tried
			}
			admitted = append(admitted, rec)
		}
	}
	o.mu.Unlock()
	l.Limit -= len(admitted)
	o.cfg.Taker.Admit(t, admitted)
	return found, nil
}

// sort tells heads apart; those to take are bounded by the room and by MaxBytes.
func (o *Order) sort(number int64, l *KeyLane, heads []storage.Head) (found map[string]finding, own, orphans []storage.ID) {
	found = make(map[string]finding, len(heads))
	now := time.Now()
	room, bytes := l.Limit, 0
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state(laneKey{l.Group, l.Subscriber})
	for _, h := range heads {
		var f finding
		_, busy := s.busy[h.Key]
		mine := h.Owner == number
		switch {
		case busy:
		case !mine && h.Living:
			f.what = foreign
		case h.DueIn > 0:
			f = finding{notYet, now.Add(h.DueIn)}
		case room <= 0 || bytes > o.cfg.MaxBytes:
			f.what = noRoom
		default:
			room--
			bytes += h.Bytes
			if mine {
				own = append(own, h.ID)
			} else {
				orphans = append(orphans, h.ID)
				f.what = foreign // unless it is taken
			}
		}
		found[h.Key] = f
	}
	return found, own, orphans
}
