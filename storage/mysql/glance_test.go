package mysql_test

import (
	"testing"
	"time"

	"github.com/capbus/gocap/storage"
)

// TestAGlanceIsOneStatement, whoever has rows: those who live, and those who have
// left them for later. It takes more only when somebody is new.
func TestAGlanceIsOneStatement(t *testing.T) {
	t.Parallel()
	s, _, rec := recorded(t)
	m := join(t, s, storage.Inbox)
	q := storage.GlanceQuery{Lanes: inLane(1).Lanes, Keys: inLane(1).Lanes, Groups: []string{"g"}}
	for name, leaves := range map[string]bool{"living": false, "gone": true} {
		other := join(t, s, storage.Inbox)
		row := incoming(name)
		_, err := other.Accept(t.Context(), row)
		must(t, err)
		_, err = other.Settle(t.Context(), storage.Outcome{ID: row.ID, Kind: storage.Retry, Attempt: 1, After: time.Hour})
		must(t, err)
		if leaves {
			must(t, other.Leave(t.Context()))
		}
		glance(t, m, q)
	}
	rec.forget()
	for range 10 {
		glance(t, m, q)
	}
	if texts := rec.forget(); len(texts) != 1 {
		t.Errorf("a glance is %d statements, want 1:\n%v", len(texts), texts)
	}
}
