// Command duelook measures what retained history costs: how long the store's
// looks take with many final rows in the tables, against few. It makes two sets
// of tables, looks into both in turns, prints medians and their ratio, and drops
// the tables.
//
//	go run ./duelook -postgres 'postgres://postgres@127.0.0.1:5432/bench' -rows 10000000
//	go run ./duelook -mysql 'root@tcp(127.0.0.1:3306)/bench' -rows 10000000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/capbus/gocap/storage/gormstore"
)

// options are the flags.
type options struct {
	postgres, mysql string
	rows, few, runs int
	analyze, keep   bool
}

func main() {
	var o options
	flag.StringVar(&o.postgres, "postgres", "", "DSN of PostgreSQL")
	flag.StringVar(&o.mysql, "mysql", "", "DSN of MySQL or MariaDB")
	flag.IntVar(&o.rows, "rows", 10_000_000, "retained rows of each of the large tables")
	flag.IntVar(&o.few, "few", 10_000, "retained rows of each of the small tables")
	flag.IntVar(&o.runs, "runs", 1000, "looks of each kind")
	flag.BoolVar(&o.analyze, "analyze", false, "analyze the tables before looking")
	flag.BoolVar(&o.keep, "keep", false, "do not drop the tables")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "duelook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	e, err := engineOf(o)
	if err != nil {
		return err
	}
	version, err := e.version(ctx)
	if err != nil {
		return err
	}
	fmt.Println(version)
	small, err := newSet(ctx, e, "duelook_few_", o.few, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, small.close(o.keep)) }()
	large, err := newSet(ctx, e, "duelook_many_", o.rows, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, large.close(o.keep)) }()
	if err := large.store.DB().WithContext(ctx).Exec(e.calm()).Error; err != nil {
		fmt.Println("no checkpoint before the looks:", err)
	}
	return compare(ctx, small, large, o)
}

// newSet makes tables with so many retained rows each.
func newSet(ctx context.Context, e engine, prefix string, rows int, o options) (*set, error) {
	store, err := e.open(gormstore.Config{TablePrefix: prefix})
	if err != nil {
		return nil, err
	}
	s := &set{store: store, rows: rows}
	if err := store.Migrate(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	start := time.Now()
	for _, fill := range e.fills(prefix) {
		for from := 0; from < rows; from += chunk {
			q := fmt.Sprintf(fill, from+1, min(from+chunk, rows))
			if err := store.DB().WithContext(ctx).Exec(q).Error; err != nil {
				return nil, errors.Join(err, s.close(o.keep))
			}
		}
	}
	for _, q := range e.analyze(prefix) {
		if !o.analyze {
			break
		}
		if err := store.DB().WithContext(ctx).Exec(q).Error; err != nil {
			return nil, errors.Join(err, s.close(o.keep))
		}
	}
	fmt.Printf("%d rows in each table of %s: filled in %.0f s\n", rows, prefix, time.Since(start).Seconds())
	if err := s.join(ctx); err != nil {
		return nil, errors.Join(err, s.close(o.keep))
	}
	return s, nil
}
