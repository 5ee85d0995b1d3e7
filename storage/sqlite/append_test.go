package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
)

// TestAGivenIDThatExistsInsertsNothing, and leaves the transaction usable.
func TestAGivenIDThatExistsInsertsNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	old := outgoing(0)
	old.GivenID = true
	publish(t, s, old)
	many := make([]*storage.Record, 1300)
	for i := range many {
		many[i] = outgoing(0)
		many[i].GivenID = i%2 == 0
	}
	twice := outgoing(0)
	twice.GivenID = true
	for name, recs := range map[string][]*storage.Record{
		"alone": {old},
		"first": {old, outgoing(0)},
		"last":  {outgoing(0), outgoing(0), old},
		"many":  append(many[:len(many):len(many)], old),
		"twice": {twice, outgoing(0), twice},
	} {
		must(t, s.DB().Transaction(func(tx *gorm.DB) error {
			w, err := s.Bind(tx)
			must(t, err)
			kept := outgoing(0)
			kept.Topic = name
			must(t, w.Append(t.Context(), kept))
			if err := w.Append(t.Context(), recs...); !errors.Is(err, storage.ErrDuplicate) {
				t.Errorf("%s: %v", name, err)
			}
			return tx.Exec("SELECT 1").Error
		}))
		if n := count(t, s, "SELECT count(*) FROM cap_published WHERE name = ?", name); n != 1 {
			t.Errorf("%s: %d rows of the same transaction", name, n)
		}
	}
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 6 {
		t.Errorf("%d rows", n)
	}
	publish(t, s, many...)
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 6+len(many) {
		t.Errorf("%d rows", n)
	}
}

// TestACancelledContextRunsNoStatement, and leaves the transaction usable.
func TestACancelledContextRunsNoStatement(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Transaction(func(tx *gorm.DB) error {
		w, err := s.Bind(tx)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Append(ctx, outgoing(0)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return w.Append(t.Context(), outgoing(0))
	}))
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// endless runs until it is interrupted; SQLite then ends the whole transaction,
// and database/sql does not know.
const endless = `INSERT INTO x WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n`

func interrupt(t *testing.T, tx *gorm.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := tx.WithContext(ctx).Exec(endless).Error; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// TestNoRowInATransactionThatSQLiteHasRolledBack: it would be committed at once,
// by itself, and the message sent although the transaction failed.
func TestNoRowInATransactionThatSQLiteHasRolledBack(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	tx := s.DB().Begin()
	must(t, tx.Error)
	w, err := s.Bind(tx)
	must(t, err)
	must(t, w.Append(t.Context(), outgoing(0)))
	interrupt(t, tx)
	if err := w.Append(t.Context(), outgoing(0)); !errors.Is(err, storage.ErrTxDone) {
		t.Errorf("append: %v", err)
	}
	tx.Rollback()
	if n := count(t, s, "SELECT count(*) FROM cap_published"); n != 0 {
		t.Errorf("%d rows of a transaction that was rolled back", n)
	}
	publish(t, s, outgoing(0))
}

// TestAHandlersTransactionThatSQLiteHasRolledBackIsNotSettled.
func TestAHandlersTransactionThatSQLiteHasRolledBackIsNotSettled(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Exec("CREATE TABLE x (a)").Error)
	m := join(t, s, storage.Inbox)
	in := incoming("1")
	_, err := m.Accept(t.Context(), in)
	must(t, err)
	for name, end := range map[string]func(tx *gorm.DB){
		"interrupted": func(tx *gorm.DB) { interrupt(t, tx) },
		"committed":   func(tx *gorm.DB) { must(t, tx.Commit().Error) },
		"rolled back": func(tx *gorm.DB) { must(t, tx.Rollback().Error) },
		"by hand":     func(tx *gorm.DB) { must(t, tx.Exec("COMMIT").Error); must(t, tx.Exec("BEGIN").Error) },
	} {
		tx, err := s.Begin(t.Context())
		must(t, err)
		end(tx.Value().(*gorm.DB))
		err = tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour})
		if !errors.Is(err, storage.ErrTxDone) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, tx.Rollback())
	}
	if got := due(t, m, inLane(5)); len(got) != 1 {
		t.Errorf("%d rows are due", len(got))
	}
	tx, err := s.Begin(t.Context())
	must(t, err)
	must(t, tx.Settle(t.Context(), m, storage.Outcome{ID: in.ID, Kind: storage.Succeed, After: time.Hour}))
	must(t, tx.Commit())
}

// TestTextsStayAsTheyAre: the driver takes some texts for dates.
func TestTextsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	out, in := join(t, s, storage.Outbox), join(t, s, storage.Inbox)
	for _, text := range []string{"2024-01-02", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z", "03:04", "a\x00b", "\xff\xfe", "Ünï", " x "} {
		msg := outgoing(out.Number())
		msg.Topic = text
		publish(t, s, msg)
		got := due(t, out, storage.Query{IDs: []storage.ID{msg.ID}})
		if len(got) != 1 || got[0].Topic != text {
			t.Errorf("topic %q: %+v", text, got)
		}
		rec := incoming(text)
		rec.Topic, rec.Group, rec.Subscriber = text, text, text
		_, err := in.Accept(t.Context(), rec)
		must(t, err)
		got = due(t, in, storage.Query{Lanes: []storage.Lane{{Group: text, Subscriber: text, Limit: 2}}})
		if len(got) != 1 || got[0].MessageID != text || got[0].Group != text || got[0].Subscriber != text || got[0].Topic != text {
			t.Errorf("text %q: %+v", text, got)
		}
		_, err = in.Settle(t.Context(), storage.Outcome{ID: rec.ID, Kind: storage.Retry, Error: text})
		must(t, err)
		got = due(t, in, storage.Query{IDs: []storage.ID{rec.ID}})
		if len(got) != 1 || got[0].LastError != storage.CleanError(text) {
			t.Errorf("error %q: %+v", text, got)
		}
	}
}

// TestLongMessageIDsAreKeptAsTheirHash, and told apart.
func TestLongMessageIDsAreKeptAsTheirHash(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Inbox)
	long, longer := strings.Repeat("x", 255), strings.Repeat("x", 256)
	fresh, err := m.Accept(t.Context(), incoming(long), incoming(longer), incoming(longer+"y"), incoming(longer))
	must(t, err)
	if len(fresh) != 3 {
		t.Errorf("%d inserted", len(fresh))
	}
	n := count(t, s, "SELECT count(*) FROM cap_received WHERE message_id LIKE 'sha256:%' AND length(message_id) = 71")
	if n != 2 {
		t.Errorf("%d hashes", n)
	}
	if fresh, err = m.Accept(t.Context(), incoming(longer)); err != nil || len(fresh) != 0 {
		t.Error(fresh, err)
	}
}

// TestOneBadRowDoesNotStallItsBatch: it is stored as failed, its callback owed.
func TestOneBadRowDoesNotStallItsBatch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	must(t, s.DB().Exec(`CREATE TRIGGER refuse BEFORE INSERT ON cap_received WHEN NEW.message_id = 'bad' AND NEW.status = 0
		BEGIN SELECT RAISE(ABORT, 'refused'); END`).Error)
	must(t, s.DB().Exec(`CREATE TRIGGER text BEFORE UPDATE ON cap_received WHEN NEW.last_error = 'bad text'
		BEGIN SELECT RAISE(ABORT, 'refused'); END`).Error)
	m := join(t, s, storage.Inbox)
	recs := []*storage.Record{incoming("1"), incoming("2"), incoming("bad"), incoming("4"), incoming("5")}
	fresh, err := m.Accept(t.Context(), recs...)
	must(t, err)
	if len(fresh) != 4 {
		t.Errorf("%d inserted", len(fresh))
	}
	got := due(t, m, storage.Query{IDs: []storage.ID{recs[2].ID}})
	if len(got) != 1 || !got[0].Final || !strings.Contains(got[0].LastError, "refused") || string(got[0].Body) != string(recs[2].Body) {
		t.Errorf("%+v", got)
	}
	lost, err := m.Settle(t.Context(),
		storage.Outcome{ID: recs[0].ID, Kind: storage.Retry, Error: "fine"},
		storage.Outcome{ID: recs[1].ID, Kind: storage.Retry, Error: "bad text", Attempt: 1},
		storage.Outcome{ID: recs[3].ID, Kind: storage.Retry, Error: "fine"})
	if err != nil || len(lost) != 0 {
		t.Error(lost, err)
	}
	got = due(t, m, storage.Query{IDs: []storage.ID{recs[1].ID}})
	if len(got) != 1 || got[0].Retries != 1 || got[0].LastError != "" {
		t.Errorf("%+v", got)
	}
}

// TestAnIDThatIsTakenIsNoDuplicate: to skip the record would lose a message.
func TestAnIDThatIsTakenIsNoDuplicate(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := join(t, s, storage.Inbox)
	a, b := incoming("1"), incoming("2")
	b.ID = a.ID
	for range 2 {
		_, err := m.Accept(t.Context(), a)
		must(t, err)
	}
	if _, err := m.Accept(t.Context(), b); err == nil {
		t.Error("a record whose id is taken was skipped")
	}
}
