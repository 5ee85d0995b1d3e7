package processor

import (
	"container/heap"
	"time"
)

// ask is the wish to look at a key.
type ask struct {
	key string
	at  time.Time // not before
	// While the key has no head, if missing is set, or one that another living
	// instance works on, it is looked at again after waits that double, until
	// ends.
	missing    bool
	wait, most time.Duration
	ends       time.Time
	// next: the row before was final just now. Nobody who died has tried what
	// follows.
	next  bool
	place int // in the heap
}

// asks are the keys of a lane to look at, the next one first.
type asks struct {
	byKey map[string]*ask
	order askHeap
}

// put adds an ask, or makes one of it and that which is there. It reports false
// when there are too many.
func (s *asks) put(a ask) bool {
	if was := s.byKey[a.key]; was != nil {
		if a.ends.After(was.ends) {
			was.ends, was.wait, was.most = a.ends, a.wait, a.most
		}
		was.missing, was.next = was.missing || a.missing, was.next || a.next
		if a.at.Before(was.at) {
			was.at = a.at
			heap.Fix(&s.order, was.place)
		}
		return true
	}
	if len(s.order) >= maxAsks {
		return false
	}
	if s.byKey == nil {
		s.byKey = map[string]*ask{}
	}
	s.byKey[a.key] = &a
	heap.Push(&s.order, &a)
	return true
}

// due takes up to n off whose time has come.
func (s *asks) due(now time.Time, n int) []*ask {
	var list []*ask
	for len(list) < n && len(s.order) > 0 && !s.order[0].at.After(now) {
		a := heap.Pop(&s.order).(*ask) //nolint:forcetypeassert // only these are put in
		delete(s.byKey, a.key)
		list = append(list, a)
	}
	return list
}

// again makes an ask for later, unless its time is over.
func (a *ask) again(now time.Time, least, most time.Duration) (ask, bool) {
	if now.After(a.ends) {
		return ask{}, false
	}
	b := *a
	b.next = false
	b.at = now.Add(min(max(a.wait, least), most))
	b.wait = min(2*a.wait, a.most)
	return b, true
}

type askHeap []*ask

func (h askHeap) Len() int           { return len(h) }
func (h askHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h askHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *askHeap) Push(x any) {
	a := x.(*ask) //nolint:forcetypeassert // only these are put in
	a.place = len(*h)
	*h = append(*h, a)
}

func (h *askHeap) Pop() any {
	old := *h
	n := len(old) - 1
	a := old[n]
	old[n] = nil
	*h = old[:n]
	return a
}
