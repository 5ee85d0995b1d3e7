package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
)

// wrapped is a pool of an application's own around another, as plugins for
// metrics and tracing make it; its transactions are wrapped, too.
type wrapped struct{ gorm.ConnPool }

func (w wrapped) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := w.ConnPool.(gorm.TxBeginner).BeginTx(ctx, opts)
	return &wrappedTx{tx}, err
}

type wrappedTx struct{ *sql.Tx }

// TestC010FlavoursOfGorm: whatever stands between a *gorm.DB and its
// transaction, the message is in that transaction; a *gorm.DB that is in none, or
// writes nothing, is an error and no message. The flavours of TestTransactions
// are more of the kind.
func TestC010FlavoursOfGorm(t *testing.T) {
	t.Parallel()
	for _, db := range databases() {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := db.make(t)
			bus := made(t, s.store, nil)
			must(t, bus.Migrate(t.Context()))
			plain := s.openGORM(t, gorm.Config{})
			own, err := gorm.Open(s.gorm(wrapped{s.db}), &gorm.Config{})
			must(t, err)
			for name, begin := range map[string]func() *gorm.DB{
				"plain":             func() *gorm.DB { return plain.Begin() },
				"prepared":          func() *gorm.DB { return s.openGORM(t, gorm.Config{PrepareStmt: true}).Begin() },
				"prepared session":  func() *gorm.DB { return plain.Session(&gorm.Session{PrepareStmt: true}).Begin() },
				"prepared in it":    func() *gorm.DB { return plain.Begin().Session(&gorm.Session{PrepareStmt: true}) },
				"new session in it": func() *gorm.DB { return plain.Begin().Session(&gorm.Session{NewDB: true}) },
				"wrapped pool":      func() *gorm.DB { return own.Begin() },
				"debug, model":      func() *gorm.DB { return plain.Begin().Table("orders").Where("id = ?", "x") },
				"resolver":          func() *gorm.DB { return s.withReplica(t, s.openGORM(t, gorm.Config{})).Begin() },
			} {
				for _, commit := range []bool{false, true} {
					tx := begin()
					must(t, tx.Error)
					id := cap.NewID()
					must(t, bus.Publish(t.Context(), tx, "t", name, cap.WithID(id)))
					if n := published(t, s, name); n != 0 {
						t.Errorf("%s: %d rows are there before the end", name, n)
					}
					want := 0
					if commit {
						want = 1
						must(t, tx.Commit().Error)
					} else {
						must(t, tx.Rollback().Error)
					}
					if n := published(t, s, name); n != want {
						t.Errorf("%s: %d rows after commit=%t, want %d", name, n, commit, want)
					}
				}
			}
			outside := map[string]*gorm.DB{"no transaction": plain, "prepared, no transaction": plain.Session(&gorm.Session{PrepareStmt: true}), "wrapped, no transaction": own, "nil": nil, "empty": {}}
			for name, db := range outside {
				if err := bus.Publish(t.Context(), db, "t", name); err == nil || published(t, s, name) != 0 {
					t.Errorf("%s: %v", name, err)
				}
			}
			err = plain.Transaction(func(tx *gorm.DB) error {
				return bus.Publish(t.Context(), tx.Session(&gorm.Session{DryRun: true}), "t", "dry")
			})
			if !errors.Is(err, cap.ErrNoTx) || published(t, s, "dry") != 0 {
				t.Errorf("dry run: %v", err)
			}
		})
	}
}

// published counts the committed messages with a body, as another connection
// sees them.
func published(t *testing.T, s *site, body string) int {
	t.Helper()
	return number(t, s.store.DB(), "SELECT count(*) FROM cap_published WHERE body = ?", []byte(`"`+body+`"`))
}
