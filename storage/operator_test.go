package storage_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
)

func TestRefuses(t *testing.T) {
	t.Parallel()
	const none = time.Duration(-1 << 62) // nothing is due
	for name, c := range map[string]struct {
		status                  storage.Status
		final                   bool
		due                     time.Duration
		requeue, cancel, delete error
	}{
		"scheduled, due":         {storage.Scheduled, false, -1, storage.ErrInWork, storage.ErrNotDelayed, storage.ErrNotFinal},
		"scheduled, soon":        {storage.Scheduled, false, time.Second, storage.ErrInWork, storage.ErrNotDelayed, storage.ErrNotFinal},
		"scheduled, later":       {storage.Scheduled, false, time.Second + 1, nil, storage.ErrNotDelayed, storage.ErrNotFinal},
		"delayed, due":           {storage.Delayed, false, 0, storage.ErrInWork, storage.ErrInWork, storage.ErrNotFinal},
		"delayed, soon":          {storage.Delayed, false, 1, nil, nil, storage.ErrNotFinal},
		"retrying, due":          {storage.Failed, false, -1, storage.ErrInWork, storage.ErrNotDelayed, storage.ErrNotFinal},
		"retrying, later":        {storage.Failed, false, time.Minute, nil, storage.ErrNotDelayed, storage.ErrNotFinal},
		"failed":                 {storage.Failed, true, none, nil, storage.ErrNotDelayed, nil},
		"failed, callback owed":  {storage.Failed, true, -1, storage.ErrInWork, storage.ErrInWork, storage.ErrInWork},
		"failed, callback later": {storage.Failed, true, time.Hour, storage.ErrInWork, storage.ErrInWork, storage.ErrInWork},
		"succeeded":              {storage.Succeeded, true, none, nil, storage.ErrNotDelayed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &storage.Row{Record: &storage.Record{Status: c.status, Final: c.final}}
			if c.due != none {
				r.DueIn, r.Position.DueAt = c.due, time.Now().Add(c.due)
			}
			for a, want := range map[storage.Action]error{storage.Requeue: c.requeue, storage.Cancel: c.cancel, storage.Delete: c.delete} {
				if got := r.Refuses(a); !errors.Is(got, want) || (got == nil) != (want == nil) {
					t.Errorf("%v: %v, want %v", a, got, want)
				}
			}
		})
	}
}

func TestFiltersAreChecked(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]storage.Filter{
		"Box":      {},
		"ids":      {Box: storage.Inbox, IDs: make([]storage.ID, storage.MaxPage+1)},
		"exclude":  {Box: storage.Inbox, Topic: "a", TopicPrefix: "b"},
		"no group": {Box: storage.Outbox, Group: "g"},
		"no state": {Box: storage.Inbox, States: []storage.State{6}},
	} {
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", f, err, want)
		}
	}
	good := storage.Filter{Box: storage.Inbox, IDs: make([]storage.ID, storage.MaxPage), Group: "g", States: []storage.State{storage.StateScheduled, storage.StateSucceeded}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStatesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for s := storage.StateScheduled; s <= storage.StateSucceeded; s++ {
		text, err := s.MarshalText()
		var got storage.State
		if err != nil || got.UnmarshalText(text) != nil || got != s {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	var s storage.State
	if err := s.UnmarshalText([]byte("dead")); err == nil || !strings.Contains(err.Error(), "retrying") {
		t.Errorf("an unknown name: %v", err)
	}
}
