package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// What a handler does in the inbox transaction: on each database, with a bus
// that polls once a minute.

// on runs a test on a site of its own on each of the databases.
func on(t *testing.T, all []database, f func(t *testing.T, s *site)) {
	t.Helper()
	for _, db := range all {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := db.make(t)
			s.exec(t, "CREATE TABLE effects (id VARCHAR(40))")
			f(t, s)
		})
	}
}

// effects is how often there is an effect.
func (s *site) effects(id string) int { return s.count("effects", "id", id) }

// row is what became of the only message of a topic: status, failed attempts.
func (s *site) row(t *testing.T, topic string) string {
	t.Helper()
	var status, retries int
	must(t, s.store.DB().Raw("SELECT status, retries FROM cap_received WHERE name = ?", topic).Row().Scan(&status, &retries))
	return fmt.Sprint(status, " ", retries)
}

// firstEnds are the ways in which the first run ends.
func firstEnds() map[string]func(ctx context.Context, tx *gorm.DB) error {
	return map[string]func(ctx context.Context, tx *gorm.DB) error{
		"error":    func(context.Context, *gorm.DB) error { return errRollback },
		"panic":    func(context.Context, *gorm.DB) error { panic("on purpose") },
		"time-out": func(ctx context.Context, _ *gorm.DB) error { <-ctx.Done(); return ctx.Err() },
		"late":     func(ctx context.Context, _ *gorm.DB) error { <-ctx.Done(); return nil },
		"reject":   func(context.Context, *gorm.DB) error { return subscribe.Reject(errRollback) },
		"success":  func(context.Context, *gorm.DB) error { return nil },
		"nested": func(_ context.Context, tx *gorm.DB) error {
			undone := tx.Transaction(func(in *gorm.DB) error {
				return errors.Join(in.Exec("INSERT INTO effects VALUES ('undone')").Error, errRollback)
			})
			return errors.Join(tx.Transaction(func(in *gorm.DB) error {
				return in.Exec("INSERT INTO effects VALUES ('kept')").Error
			}), undone)
		},
		"savepoints": func(_ context.Context, tx *gorm.DB) error {
			_ = tx.Transaction(func(in *gorm.DB) error { // a refused statement, taken back
				return errors.Join(in.Exec("INSERT INTO effects VALUES ('refused')").Error, in.Session(&gorm.Session{}).Exec("INSERT INTO nowhere VALUES (1)").Error)
			})
			return tx.Exec("INSERT INTO effects VALUES ('behind it')").Error
		},
	}
}

// worker writes, publishes and answers in the inbox transaction; its first run
// then ends as it may.
func worker(how string, end func(ctx context.Context, tx *gorm.DB) error) subscribe.Subscription {
	opts := []subscribe.Option{subscribe.Group("g")}
	if timed(how) {
		opts = append(opts, subscribe.Timeout(time.Second))
	}
	return subscribe.Reply("work."+how, func(ctx context.Context, m string) (string, error) {
		return how, gormstore.Handle(func(ctx context.Context, tx *gorm.DB, _ string) error {
			if err := tx.Exec("INSERT INTO effects VALUES (?)", how).Error; err != nil {
				return err
			}
			info, _ := cap.InfoFromContext(ctx)
			if err := cap.Publish(ctx, nil, "made."+how, info.Attempt); err != nil {
				return err
			}
			if info.Attempt > 1 {
				return nil
			}
			return end(ctx, tx)
		})(ctx, m)
	}, opts...)
}

// timed are the ways whose later runs may end so, too, on a slow machine.
func timed(how string) bool { return how == "time-out" || how == "late" }

// TestAHandlersTransaction: what the first run writes, publishes and answers is
// gone when that run fails, whichever way; what the second one does is there
// once, and leaves at once.
func TestAHandlersTransaction(t *testing.T) {
	t.Parallel()
	on(t, databases(), func(t *testing.T, s *site) {
		t.Helper()
		ends := firstEnds()
		subs := []subscribe.Subscription{inGroup("made.*", s.note)}
		for how, end := range ends {
			subs = append(subs, worker(how, end))
		}
		s.start(t, memqueue.New(memqueue.Config{}), subs...)
		for how := range ends {
			must(t, s.bus.Publish(t.Context(), cap.NoTx, "work."+how, how, cap.WithReplyTo("made.answer-"+how)))
		}
		settled(t, s.store.DB(), window)
		for how := range ends {
			effects, row := 1, "2 1"
			switch how {
			case "success", "savepoints":
				row = "2 0"
			case "reject":
				effects, row = 0, "3 1"
			}
			if n, made, answers, is := s.effects(how), s.count("cap_published", "name", "made."+how), s.count("cap_published", "name", "made.answer-"+how), s.row(t, "work."+how); n != effects || made != effects || answers != effects || is != row && !timed(how) {
				t.Errorf("%s: %d effects, %d messages, %d answers, row %s; want %d and row %s", how, n, made, answers, is, effects, row)
			}
			if handled := len(s.handled.of("made."+how)) + len(s.handled.of("made.answer-"+how)); handled != 2*effects {
				t.Errorf("%s: %d messages handled, want %d", how, handled, 2*effects)
			}
		}
		for id, want := range map[string]int{"undone": 0, "kept": 0, "refused": 0, "behind it": 1} { // "nested" ends in error
			if n := s.effects(id); n != want {
				t.Errorf("%d effects %q, want %d", n, id, want)
			}
		}
	})
}

// note notes when a message was handled.
func (s *site) note(ctx context.Context, _ any) error {
	info, _ := cap.InfoFromContext(ctx)
	s.handled.add(info.Message.Topic)
	return nil
}

// TestWhatAHandlerPublishesLeavesAtOnce: three messages in a row, each in the
// inbox transaction of the one before, long before the next poll.
func TestWhatAHandlerPublishesLeavesAtOnce(t *testing.T) {
	t.Parallel()
	on(t, databases(), func(t *testing.T, s *site) {
		t.Helper()
		s.start(t, memqueue.New(memqueue.Config{}),
			inGroup("first", gormstore.Handle(func(ctx context.Context, _ *gorm.DB, m string) error { return cap.Publish(ctx, nil, "second", m) })),
			subscribe.Reply("second", func(_ context.Context, m string) (string, error) { return m, nil }, subscribe.Group("g")),
			inGroup("second", func(ctx context.Context, m string) error {
				return cap.Publish(ctx, nil, "fourth", m)
			}, subscribe.Name("again")),
			inGroup("third", s.note), inGroup("fourth", s.note))
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "first", "m"))
		begun := time.Now()
		eventually(t, "the last one is handled", func() bool { return len(s.handled.of("fourth")) > 0 })
		if d := time.Since(begun); d > 3*promptly {
			t.Errorf("three messages took %s", d)
		}
		settled(t, s.store.DB(), window)
		if n := len(s.handled.of("third")); n != 0 {
			t.Errorf("%d answers to a message that wants none", n)
		}
	})
}

// TestALostLeaseTakesAllBack: another instance has the row when the first run
// ends.
func TestALostLeaseTakesAllBack(t *testing.T) {
	t.Parallel()
	on(t, databases(), func(t *testing.T, s *site) {
		t.Helper()
		subs := []subscribe.Subscription{inGroup("made.*", s.note), subscribe.Reply("work", func(ctx context.Context, _ string) (int, error) {
			run := fmt.Sprint("run ", len(s.handled.of("run")))
			if s.handled.add("run"); run == "run 0" {
				// As by a takeover; nobody's rows are looked for once a poll.
				must(t, s.store.DB().Exec("UPDATE cap_received SET owner = NULL WHERE name = ?", "work").Error)
			}
			tx, err := cap.TxFromContext(ctx)
			if err != nil {
				return 0, err
			}
			if err := tx.(*gorm.DB).Exec("INSERT INTO effects VALUES (?)", run).Error; err != nil { //nolint:forcetypeassert // gormstore's
				return 0, err
			}
			return 1, cap.Publish(ctx, nil, "made.nested", run)
		}, subscribe.Group("g"))}
		s.start(t, memqueue.New(memqueue.Config{}), subs...)
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "work", "m", cap.WithReplyTo("made.answer")))
		eventually(t, "the first run has begun", func() bool { return len(s.handled.of("run")) > 0 })
		must(t, s.bus.Stop(t.Context())) // it waits for the run
		s.start(t, memqueue.New(memqueue.Config{}), subs...)
		settled(t, s.store.DB(), window)
		if a, b := s.effects("run 0"), s.effects("run 1"); a != 0 || b != 1 {
			t.Errorf("%d effects of the run that had lost its lease, %d of the other one", a, b)
		}
		if made, answers := s.count("cap_published", "name", "made.nested"), s.count("cap_published", "name", "made.answer"); made != 1 || answers != 1 {
			t.Errorf("%d messages and %d answers, want one of each", made, answers)
		}
	})
}

// TestAHandlerThatOverlooksADeadlock has not succeeded: the server has ended its
// transaction (PostgreSQL: will not commit it), and it runs again.
func TestAHandlerThatOverlooksADeadlock(t *testing.T) {
	t.Parallel()
	on(t, databases()[1:], func(t *testing.T, s *site) { // SQLite has one writer, and no deadlocks
		t.Helper()
		s.start(t, memqueue.New(memqueue.Config{}), inGroup("made.*", s.note), subscribe.Reply("work", func(ctx context.Context, m string) (string, error) {
			return m, gormstore.SQLHandle(func(ctx context.Context, tx *sql.Tx, m string) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('m')"); err != nil {
					return err
				}
				if err := cap.Publish(ctx, nil, "made.nested", m); err != nil {
					return err
				}
				if info, _ := cap.InfoFromContext(ctx); info.Attempt == 1 {
					(&txCase{TB: t, s: s, id: m, n: 1}).deadlock(sqlHeld(tx)) //nolint:contextcheck // bounded by the test
				}
				return nil
			})(ctx, m)
		}, subscribe.Group("g")))
		must(t, s.bus.Publish(t.Context(), cap.NoTx, "work", "m", cap.WithReplyTo("made.answer")))
		settled(t, s.store.DB(), window)
		if row, n := s.row(t, "work"), s.effects("m"); row != "2 1" || n != 1 {
			t.Errorf("row %s, %d effects, want success at the second attempt and one", row, n)
		}
		if made, answers := s.count("cap_published", "name", "made.nested"), s.count("cap_published", "name", "made.answer"); made != 1 || answers != 1 {
			t.Errorf("%d messages and %d answers, want one of each", made, answers)
		}
	})
}
