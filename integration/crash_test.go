package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// rounds is how often the process is killed: in CI fewer times than in the full
// run (GOCAP_CRASH_ROUNDS=200).
const rounds = 25

// TestKilledAtRandomMoments kills a service under load with SIGKILL, again and
// again, and then lets it finish its work: every committed order is handled, no
// other is, and what is done in the inbox transaction is done once.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	seed := fromEnv(t, "GOCAP_CRASH_SEED", time.Now().UnixNano())
	n := int(fromEnv(t, "GOCAP_CRASH_ROUNDS", rounds))
	t.Logf("GOCAP_CRASH_SEED=%d GOCAP_CRASH_ROUNDS=%d", seed, n)
	rng := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // repeatable on purpose
	path := filepath.Join(t.TempDir(), "shop.db")
	for round := range n {
		after := time.Duration(rng.IntN(600)) * time.Millisecond
		runAndKill(t, path, round, after)
	}
	s := start(t, path)
	placed := number(t, s.store.DB(), "SELECT count(*) FROM orders")
	settled(t, s.store.DB(), window)
	verify(t, s.store.DB())
	t.Logf("%d kills, %d orders, %d rows were taken over from killed processes at least once", n, placed,
		number(t, s.store.DB(), "SELECT count(DISTINCT number) FROM cap_instances WHERE died = 1"))
	if placed < n {
		t.Errorf("only %d orders were placed in %d rounds: the load is too small to show anything", placed, n)
	}
}

func fromEnv(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// runAndKill starts a child, waits until its load runs, and kills it after a
// while.
func runAndKill(t *testing.T, path string, round int, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"=crash", "GOCAP_TEST_DB="+path, "GOCAP_TEST_ROUND="+strconv.Itoa(round))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "loaded\n" {
		t.Errorf("round %d: the child said %q, %v", round, line, err)
	}
	<-time.After(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Errorf("round %d: the child ended by itself: %v", round, cmd.ProcessState)
	}
}

// crashChild runs the service under load until it is killed.
func crashChild() {
	ctx := context.Background()
	s, err := newService(ctx, os.Getenv("GOCAP_TEST_DB"))
	if err == nil {
		err = s.bus.Start(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	say("loaded")
	for worker := range 4 {
		go s.load(ctx, fmt.Sprintf("%s-%d", os.Getenv("GOCAP_TEST_ROUND"), worker))
	}
	select {}
}

var errRollback = errors.New("rolled back on purpose")

// load places orders; a third of them is rolled back, by an error, a panic or
// a context that ends.
func (s *service) load(ctx context.Context, prefix string) {
	for n := 0; ; n++ {
		s.placeOrNot(ctx, fmt.Sprintf("%s-%d", prefix, n), n%9)
		<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond) //nolint:gosec // load
	}
}

func (s *service) placeOrNot(ctx context.Context, id string, how int) {
	defer func() { _ = recover() }()
	var err error
	switch how {
	case 2:
		err = s.place(ctx, "rolled-back-"+id, errRollback)
	case 5:
		cctx, cancel := context.WithCancel(ctx)
		err = s.placeThen(cctx, "cancelled-"+id, cancel)
	case 8:
		err = s.placeThen(ctx, "panicked-"+id, func() { panic("on purpose") })
	default:
		err = s.place(ctx, id, nil)
	}
	if how%3 != 2 && err != nil {
		fmt.Fprintln(os.Stderr, "child: place:", err)
	}
}

// TestCommittedBeforeTheKillIsSent: a message that was committed by a program
// without an engine is sent by the next one that runs.
func TestCommittedBeforeTheKillIsSent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	first, err := newService(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.place(t.Context(), "1", nil); err != nil { // never started
		t.Fatal(err)
	}
	if err := first.store.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, path)
	settled(t, second.store.DB(), window)
	verify(t, second.store.DB())
}
