// Command quickstart is a shop with two helpers, coupon and files, that learn of
// its products by messages: on SQLite, in one process, without a server. Its page
// shows what happens to each message.
//
// What to read: shop.go publishes, handlers.go subscribes, run below puts it
// together. The rest is an HTTP service, and what it takes to look inside.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/sqlite"
	"github.com/capbus/gocap/transport/memqueue"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on; port 0 picks a free one")
	file := flag.String("db", "quickstart.db", "SQLite `file`, made unless it is there")
	crash := flag.Bool("crash", false, "die between the commit and the send of the next change")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := run(*addr, *file, *crash); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(addr, file string, crash bool) (err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; choose another address with -addr, such as -addr 127.0.0.1:8081", err)
	}
	defer func() { _ = listener.Close() }() // unless serve has
	store, err := openStore(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	queue := memqueue.New(memqueue.Config{})
	bus, err := cap.New(cap.Options{
		Storage:   store,
		Transport: queue,
		// Short times, so that nobody has to wait for what there is to see: a
		// process that was killed is missed after 3 s, and failed attempts follow
		// each other once a second.
		FallbackWindow:      3 * time.Second,
		PollInterval:        500 * time.Millisecond,
		ImmediateRetries:    -1,
		FailedRetryInterval: time.Second,
	})
	if err != nil {
		return err
	}
	subscribeCoupon()
	subscribeFiles(store.DB())
	status := monitor{db: store.DB(), started: time.Now().UTC(), crash: crash}
	handler := routes(shop{db: store.DB()}, status)
	if crash {
		holdBack(queue)
		handler = dieAfterCommit(handler, status)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Stop(context.WithoutCancel(ctx))) }()
	welcome("http://"+listener.Addr().String(), file, status)
	return serve(ctx, listener, handler)
}

// openStore opens the database and makes the tables of the shop and its helpers.
// Those of the bus are made by Start.
func openStore(file string) (*gormstore.Store, error) {
	store, err := sqlite.Open(file, sqlite.Config{
		BusyTimeout: 20 * time.Second, // SQLite has one writer: in a burst of requests each waits its turn
		GORM:        &gorm.Config{Logger: logger.Discard},
	})
	if err != nil {
		return nil, err
	}
	if err := store.DB().AutoMigrate(&Product{}, &Coupon{}, &File{}); err != nil {
		return nil, errors.Join(fmt.Errorf("tables in %s: %w", file, err), store.Close())
	}
	return store, nil
}

// serve answers requests until ctx ends, and then finishes those under way.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	fmt.Println("stopping")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return srv.Shutdown(ending)
}
