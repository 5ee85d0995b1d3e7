package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// startMatrixChild starts a process on the same storage and transport, and
// returns when one message is in its handler and another in its sender.
func startMatrixChild(t *testing.T, args []string) (kill func()) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(end)
	cmd := exec.CommandContext(ctx, os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"=matrix", "GOCAP_MATRIX_CHILD="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the child said %q, %v: %v", line, err, cmd.Wait())
	}
	return func() {
		must(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Errorf("the child ended by itself: %v", cmd.ProcessState)
		}
	}
}

// matrixChild gets into the middle of its work and waits to be killed.
func matrixChild() {
	if err := beInTheMiddle(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	select {}
}

func beInTheMiddle(ctx context.Context) error {
	args := strings.Split(os.Getenv("GOCAP_MATRIX_CHILD"), "\n")
	storageName, db, transportName, queue, version := args[0], args[1], args[2], args[3], args[4]
	p := &pair{working: make(chan struct{}, 1)}
	for _, s := range matrixStorages() {
		if s.name == storageName {
			var err error
			if p.storage, _, err = s.open(db); err != nil {
				return err
			}
		}
	}
	h := &holding{held: make(chan struct{}, 1)}
	for _, tr := range matrixTransports() {
		if tr.name == transportName {
			var err error
			if h.Transport, _, err = tr.open(queue, version); err != nil {
				return err
			}
		}
	}
	if v, ok := h.Transport.(transport.Versioned); ok {
		h.Transport = v.ForVersion(version)
	}
	opts := short(p.storage, h, p.options(version))
	opts.Subscriptions = []subscribe.Subscription{
		subscribe.To("matrix.ready", p.handle),
		subscribe.To("matrix.placed", func(context.Context, string) error {
			p.working <- struct{}{}
			select {}
		}),
	}
	bus, err := cap.New(opts)
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	for p.seen.count("ready") == 0 {
		if err := bus.Publish(ctx, cap.NoTx, "matrix.ready", "ready"); err != nil {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
	if err := bus.Publish(ctx, cap.NoTx, "matrix.placed", "in work"); err != nil {
		return err
	}
	<-p.working
	h.hold.Store(true)
	if err := bus.Publish(ctx, cap.NoTx, "matrix.placed", "not sent"); err != nil {
		return err
	}
	<-h.held
	say("ready")
	return nil
}

// holding is a transport that can keep what it is to send.
type holding struct {
	transport.Transport

	hold atomic.Bool
	held chan struct{}
}

func (h *holding) Send(ctx context.Context, msgs []*transport.Message) []error {
	if h.hold.Load() && msgs[0].Topic == "matrix.placed" {
		h.held <- struct{}{}
		select {}
	}
	return h.Transport.Send(ctx, msgs)
}

func (h *holding) Declare(ctx context.Context, src transport.Source) error {
	if d, ok := h.Transport.(transport.Declarer); ok {
		return d.Declare(ctx, src)
	}
	return nil
}
