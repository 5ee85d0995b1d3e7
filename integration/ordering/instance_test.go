package ordering

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// lease is the FallbackWindow of the instances.
const lease = 3 * time.Second

// turn is a message: the n-th of its key.
type turn struct {
	Key string
	N   int
}

// rejected are messages that fail for good.
func (m turn) rejected() bool { return m.N%50 == 33 }

// open opens the database, which is a file or a DSN.
func open(db string) (*gormstore.Store, error) {
	cfg := &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true}
	if strings.HasPrefix(db, "postgres://") {
		return postgres.Open(db, postgres.Config{GORM: cfg, MaxConns: 10})
	}
	return sqlite.Open(db, sqlite.Config{Synchronous: "NORMAL", BusyTimeout: 20 * time.Second, GORM: cfg})
}

// tables makes those of the business. What was published is unique, so that a
// batch whose commit is not known can be tried again.
func tables(db *gorm.DB) error {
	number := "INTEGER PRIMARY KEY AUTOINCREMENT"
	if db.Name() == "postgres" {
		number = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	}
	for _, q := range []string{
		`CREATE TABLE sent (k TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (k, n))`,
		`CREATE TABLE handled (seq ` + number + `, k TEXT NOT NULL, n INTEGER NOT NULL)`,
	} {
		if err := db.Exec(q).Error; err != nil {
			return err
		}
	}
	return nil
}

// instance runs a bus until its input says stop, and publishes what it is told.
func instance(db string) error {
	ctx := context.Background()
	store, err := open(db)
	if err != nil {
		return err
	}
	bus, err := cap.New(cap.Options{
		Storage: store, Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
		Subscriptions: []subscribe.Subscription{subscribe.To("turn", gormstore.Handle(handle),
			subscribe.Ordered(), subscribe.Group("ordering"))},
		Logger:         slog.New(slog.NewTextHandler(logs(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		FallbackWindow: lease, PollInterval: 200 * time.Millisecond, FailedRetryInterval: 100 * time.Millisecond,
		ImmediateRetries: 1, Concurrency: 8, SkipMigrations: true,
	})
	if err == nil {
		err = bus.Start(ctx)
	}
	if err != nil {
		return err
	}
	say("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var under sync.WaitGroup
	for in.Scan() && in.Text() != "stop" {
		line := in.Text()
		under.Go(func() {
			id, batch := parse(line)
			if err := publish(ctx, store, bus, batch); err != nil {
				say("failed", id, strings.ReplaceAll(err.Error(), "\n", " "))
				return
			}
			say("done", id)
		})
	}
	under.Wait()
	return errors.Join(bus.Stop(ctx), store.Close())
}

// logs are for whoever looks into a failure.
func logs() io.Writer {
	if os.Getenv("GOCAP_TEST_LOG") != "" {
		return os.Stderr
	}
	return io.Discard
}

// handle notes the message in its transaction. Some runs fail, before or after.
func handle(ctx context.Context, tx *gorm.DB, m turn) error {
	if m.rejected() {
		return subscribe.Reject(errors.New("never"))
	}
	lot := rand.IntN(60) //nolint:gosec // a lot
	if lot == 0 {
		return errors.New("before")
	}
	if err := tx.WithContext(ctx).Exec(`INSERT INTO handled (k, n) VALUES (?, ?)`, m.Key, m.N).Error; err != nil {
		return err
	}
	switch lot {
	case 1:
		return errors.New("after")
	case 2:
		return subscribe.Snooze(5 * time.Millisecond)
	}
	return nil
}

// publish writes a batch in one transaction.
func publish(ctx context.Context, store *gormstore.Store, bus *cap.Bus, batch []turn) error {
	return store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		rows := make([]string, len(batch))
		var args []any
		msgs := make([]cap.Outgoing, len(batch))
		for i, m := range batch {
			rows[i] = "(?,?)"
			args = append(args, m.Key, m.N)
			msgs[i] = cap.Outgoing{Topic: "turn", Msg: m, Opts: []cap.PublishOption{cap.WithKey(m.Key)}}
		}
		if err := tx.Exec(`INSERT INTO sent (k, n) VALUES `+strings.Join(rows, ","), args...).Error; err != nil {
			return err
		}
		return bus.PublishMany(ctx, tx, msgs...)
	})
}

// parse reads a line: a number, and key:n for each message.
func parse(line string) (id string, batch []turn) {
	id, rest, _ := strings.Cut(line, " ")
	for _, word := range strings.Fields(rest) {
		key, text, _ := strings.Cut(word, ":")
		n, err := strconv.Atoi(text)
		if err != nil {
			panic("input: " + word)
		}
		batch = append(batch, turn{key, n})
	}
	return id, batch
}

//nolint:gochecknoglobals // the output of an instance
var output sync.Mutex

// say writes a line that the parent reads.
func say(words ...any) {
	output.Lock()
	defer output.Unlock()
	if _, err := fmt.Fprintln(os.Stdout, words...); err != nil {
		os.Exit(4)
	}
}
