package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
)

// swarm starts and kills the processes.
type swarm struct {
	t        *testing.T
	db       swarmDB
	dsn      string
	env      []string
	children []*swarmChild
}

type swarmChild struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	said  *bufio.Reader
}

func (s *swarm) start() {
	s.t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test binary; it is stopped below
	cmd.Env = append(append(os.Environ(), childEnv+"=swarm", "GOCAP_TEST_KIND="+s.db.name, "GOCAP_TEST_DB="+s.dsn), s.env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(s.t, err)
	out, err := cmd.StdoutPipe()
	must(s.t, err)
	must(s.t, cmd.Start())
	c := &swarmChild{cmd, in, bufio.NewReader(out)}
	s.children = append(s.children, c)
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := c.said.ReadString('\n'); err != nil || line != "loaded\n" {
		s.t.Fatalf("a child said %q, %v", line, err)
	}
}

func (s *swarm) kill(i int) {
	s.t.Helper()
	c := s.children[i]
	s.children = append(s.children[:i], s.children[i+1:]...)
	must(s.t, c.cmd.Process.Kill())
	if err := c.cmd.Wait(); err == nil || c.cmd.ProcessState.Exited() {
		s.t.Errorf("a child ended by itself: %v", c.cmd.ProcessState)
	}
}

// quiet ends the load.
func (s *swarm) quiet() {
	for _, c := range s.children {
		must(s.t, c.cmd.Process.Signal(quietSignal))
	}
}

// stop ends the children in order.
func (s *swarm) stop() {
	for _, c := range s.children {
		must(s.t, c.stdin.Close())
	}
	for _, c := range s.children {
		if err := c.cmd.Wait(); err != nil {
			s.t.Errorf("a child ended with %v", err)
		}
	}
}

var errSwarm = errors.New("swarm")

// place writes an order and its message in one transaction.
func (s *service) placeOrder(ctx context.Context, id string, fail error) error {
	return s.store.DB().WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec("INSERT INTO orders (id) VALUES (?)", id).Error; err != nil {
			return err
		}
		if err := s.bus.Publish(ctx, tx, "order.placed", order{id}); err != nil {
			return err
		}
		return fail
	})
}

// load places orders until quiet, some of which are rolled back.
func (s *service) swarmLoad(ctx context.Context, wg *sync.WaitGroup, pause time.Duration) {
	for range 2 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := cap.NewID() // pids come again
				var err error
				if n%7 == 6 {
					err = s.placeOrder(ctx, "rolled-back-"+id, errSwarm)
				} else {
					err = s.placeOrder(ctx, id, nil)
				}
				if err != nil && !errors.Is(err, errSwarm) && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "child: place:", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
}

// alive reports whether a process is there, and does not stand still.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") T ")
}
