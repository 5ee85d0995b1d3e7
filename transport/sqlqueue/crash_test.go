package sqlqueue_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/sqlqueue"
)

// childDSN makes this program a consumer that answers nothing and says what it has.
const (
	childDSN     = "GOCAP_TEST_CHILD_DSN"
	childOrdered = "GOCAP_TEST_CHILD_ORDERED"
)

// lease of the crash tests: a killed consumer's messages are free after it.
const lease = 2 * time.Second

func child(dsn string) {
	tr := sqlqueue.New(sqlqueue.Config{DSN: dsn, Lease: lease})
	src := source("g", 50)
	src.Ordered = os.Getenv(childOrdered) != ""
	err := tr.Receive(context.Background(), src, func(_ context.Context, batch []transport.Delivery) {
		for _, d := range batch {
			fmt.Println(d.Message().ID) //nolint:forbidigo // to the parent
		}
	})
	panic(err)
}

// consumer starts a child and waits until it has n messages in hand.
func consumer(t *testing.T, dsn string, ordered bool, n int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), childDSN+"="+dsn)
	if ordered {
		cmd.Env = append(cmd.Env, childOrdered+"=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for range n {
		if !lines.Scan() {
			t.Fatalf("the consumer has ended: %v", lines.Err())
		}
	}
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) time.Time {
	t.Helper()
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	return time.Now()
}

// takeover bounds how long a killed consumer's messages are nobody's: its lease,
// and the next look of another.
const takeover = lease + 500*time.Millisecond

// slack is for a machine that has other things to do.
const slack = 3 * time.Second

func TestAKilledConsumer(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, Lease: lease})
	declare(t, tr, "g")
	send(t, tr, messages("m", "a.b", 50)...)
	cmd := consumer(t, dsn, false, 50)
	in := receive(t, tr, source("g", 100))
	send(t, tr, messages("n", "a.b", 10)...)
	in.ids(10) // it does not stand still meanwhile
	killed := kill(t, cmd)
	ids := in.ids(50)
	if took := time.Since(killed); took > takeover+slack {
		t.Errorf("the last message came %v after the kill, at most %v is promised", took, takeover)
	}
	for _, m := range messages("m", "a.b", 50) {
		if ids[m.ID] != 1 {
			t.Errorf("message %s came %d times", m.ID, ids[m.ID])
		}
	}
}

// TestAKilledConsumerOfAnOrderedGroup: the next one gets first what it had.
func TestAKilledConsumerOfAnOrderedGroup(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, Lease: lease})
	src := source("g", 20)
	src.Ordered = true
	must(t, tr.Declare(t.Context(), src))
	send(t, tr, messages("m", "a.b", 80)...)
	cmd := consumer(t, dsn, true, 50)
	in := receive(t, tr, src)
	killed := kill(t, cmd)
	for i := range 80 {
		d := in.next()
		if want := fmt.Sprint("m", i); d.Message().ID != want {
			t.Fatalf("message %s in the place of %s", d.Message().ID, want)
		}
		must(t, d.Ack())
	}
	if took := time.Since(killed); took > takeover+slack {
		t.Errorf("it took %v, at most %v is promised", took, takeover)
	}
}

// TestALostLease: what others may have by now is not its own any more, and it finds
// out.
func TestALostLease(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: dsn, Lease: lease})
	declare(t, tr, "g")
	in := receive(t, tr, source("g", 10))
	send(t, tr, messages("m", "a.b", 3)...)
	old := []transport.Delivery{in.next(), in.next(), in.next()}
	run(t, dsn, `UPDATE cap_queue_receivers SET lives_until = clock_timestamp()`)
	t.Log(in.lost())
	if err := old[0].Ack(); err == nil {
		t.Error("an ack was taken after the lease was lost")
	}
	if ids := in.ids(3); len(ids) != 3 {
		t.Errorf("got %v", ids)
	}
}

// TestShortCut: a connection that is lost takes nothing out of anybody's hands.
func TestShortCut(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	tr := open(t, sqlqueue.Config{DSN: with(t, dsn, "", "application_name=cut")})
	declare(t, tr, "g")
	in := receive(t, tr, source("g", 3))
	send(t, tr, messages("m", "a.b", 3)...)
	inHand := []transport.Delivery{in.next(), in.next(), in.next()} // the window is full: it does not look
	run(t, dsn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut'`)
	for _, d := range inHand {
		must(t, d.Ack())
	}
	eventually(t, "a message is sent", func() bool { return tr.Send(t.Context(), messages("n", "a.b", 1))[0] == nil })
	if ids := in.ids(1); ids["n0"] != 1 {
		t.Errorf("got %v", ids)
	}
	select {
	case err := <-in.errs:
		t.Errorf("the receiver was lost: %v", err)
	default:
	}
}

// TestDatabaseRestarts stops and kills the server under load: what was reported as
// stored arrives in each group.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	tr := open(t, sqlqueue.Config{DSN: server.DSN, Lease: lease})
	declare(t, tr, "g", "h")
	tallies := []*tally{tallyOf(receive(t, tr, source("g", 20))), tallyOf(receive(t, tr, source("h", 20)))}
	ctx, stop := context.WithCancel(t.Context())
	stored := make(chan []string)
	go func() {
		var ids []string
		for round := 0; ctx.Err() == nil; round++ {
			msgs := messages(fmt.Sprintf("m%d.", round), "a.b", 10)
			for i, err := range tr.Send(t.Context(), msgs) { //nolint:contextcheck // ctx ends the loop, not a Send
				if err == nil {
					ids = append(ids, msgs[i].ID)
				}
			}
		}
		stored <- ids
	}()
	for _, end := range []func() error{server.Stop, server.Kill} {
		for _, y := range tallies {
			y.grows(t, 300)
		}
		must(t, end())
		must(t, server.Start(t.Context()))
		began := time.Now()
		for _, y := range tallies {
			y.grows(t, 300)
		}
		t.Logf("600 messages %v after the server answered", time.Since(began))
	}
	stop()
	ids := <-stored
	for _, y := range tallies {
		eventually(t, "all that was stored has come", func() bool { return y.missing(ids) == 0 })
	}
}

// tally acks what comes to an inbox, and keeps the ids.
type tally struct {
	mu  sync.Mutex
	ids map[string]int
}

func tallyOf(in *inbox) *tally {
	y := &tally{ids: map[string]int{}}
	go func() {
		for {
			select {
			case d := <-in.got:
				_ = d.Ack()
				y.mu.Lock()
				y.ids[d.Message().ID]++
				y.mu.Unlock()
			case <-in.done:
				return
			}
		}
	}()
	return y
}

func (y *tally) size() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.ids)
}

// grows waits until n more have come.
func (y *tally) grows(t *testing.T, n int) {
	t.Helper()
	was := y.size()
	eventually(t, fmt.Sprintf("%d more messages have come", n), func() bool { return y.size() >= was+n })
}

func (y *tally) missing(ids []string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	n := 0
	for _, id := range ids {
		if y.ids[id] == 0 {
			n++
		}
	}
	return n
}
