package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
)

const (
	processWriters  = 20
	processMessages = 25 // of each writer
)

// TestTwoProcessesOnOneFile: writers that also read first, relays, heartbeats
// and the collector of two processes work at once; nobody is refused, and each
// message is there once.
func TestTwoProcessesOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cap.db")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program itself
			cmd.Env = append(os.Environ(), childPath+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	s := open(t, path)
	must(t, s.Check(t.Context()))
	const want = 2 * processWriters * processMessages
	if n := count(t, s, "SELECT count(*) FROM cap_published WHERE status = 2"); n != want {
		t.Errorf("%d messages were settled, want %d", n, want)
	}
	if n := count(t, s, "SELECT count(*) FROM business"); n != want {
		t.Errorf("%d rows of business, want %d", n, want)
	}
	if n := count(t, s, "SELECT count(DISTINCT message_id) FROM cap_received"); n != want {
		t.Errorf("%d messages arrived, want %d", n, want)
	}
}

// childPath makes this program the other process of a test, on that file.
const childPath = "GOCAP_TEST_CHILD_PATH"

func publishingChild(path string) {
	if err := publishAndRelay(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func publishAndRelay(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := sqlite.Open(path, sqlite.Config{Synchronous: "NORMAL", GORM: &gorm.Config{Logger: logger.Discard}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	if err := s.DB().Exec("CREATE TABLE IF NOT EXISTS business (id TEXT)").Error; err != nil {
		return err
	}
	out, err := s.Join(ctx, storage.Instance{Box: storage.Outbox, Version: version, Lease: time.Minute})
	if err != nil {
		return err
	}
	in, err := s.Join(ctx, storage.Instance{Box: storage.Inbox, Version: version, Lease: time.Minute})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make(chan error, processWriters+1)
	for range processWriters {
		wg.Go(func() { errs <- writeMessages(ctx, s, out.Number()) })
	}
	wg.Go(func() { errs <- relay(ctx, s, out, in) })
	wg.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return errors.Join(err, out.Leave(ctx), in.Leave(ctx))
}

func writeMessages(ctx context.Context, s *gormstore.Store, owner int64) error {
	for range processMessages {
		err := s.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var n int
			if err := tx.Raw("SELECT count(*) FROM business").Row().Scan(&n); err != nil {
				return err
			}
			if err := tx.Exec("INSERT INTO business VALUES (?)", storage.ID(ids.New()).String()).Error; err != nil {
				return err
			}
			w, err := s.Bind(tx) //nolint:contextcheck // it does no I/O
			if err != nil {
				return err
			}
			return w.Append(ctx, outgoing(owner))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// relay carries the member's messages into the inbox, until it has had them all.
func relay(ctx context.Context, s *gormstore.Store, out, in storage.Member) error {
	for had := 0; had < processWriters*processMessages; {
		recs, _, err := out.Due(ctx, outLane(50))
		if err != nil {
			return err
		}
		var arrived []*storage.Record
		var done []storage.Outcome
		for _, r := range recs {
			arrived = append(arrived, incoming(r.ID.String()))
			done = append(done, storage.Outcome{ID: r.ID, Kind: storage.Succeed, After: time.Hour})
		}
		fresh, err := in.Accept(ctx, arrived...)
		if err != nil || len(fresh) != len(recs) {
			return fmt.Errorf("%d of %d were new: %w", len(fresh), len(recs), err)
		}
		if lost, err := out.Settle(ctx, done...); err != nil || len(lost) > 0 {
			return fmt.Errorf("lost %v: %w", lost, err)
		}
		had += len(recs)
		if err := errors.Join(out.Beat(ctx), in.Beat(ctx)); err != nil {
			return err
		}
		if _, err := s.Purge(ctx, storage.Purge{Box: storage.Inbox, Version: version, Limit: 10}); err != nil {
			return err
		}
		if _, err := in.TakeOver(ctx, inLane(5)); err != nil {
			return err
		}
	}
	return nil
}
