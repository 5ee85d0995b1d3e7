package ordering

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gorm.io/gorm"
)

// fleet is the instances, and what they were told to publish. The next message
// of a key is given out when the commit of the one before has returned, to any
// instance.
type fleet struct {
	tb        testing.TB
	db        string
	look      *gorm.DB // for the parent's own eyes
	rng       *rand.Rand
	each      int // messages of a key
	batch     int
	events    chan event
	instances []*child

	free    []string // keys whose next message can be published
	next    map[string]int
	left    int // messages that are not committed, as far as we know
	batches int
	retry   [][]turn // of instances that were killed: commit not known

	kills, leaves, joins int
}

// child is an instance as a process.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	under map[string][]turn // batches without an answer
	ready bool
	gone  bool // told to stop, or killed
}

// event is a line of an instance; an empty one: it has ended.
type event struct {
	from *child
	line string
	err  error
}

func (f *fleet) join() {
	f.tb.Helper()
	cmd := exec.CommandContext(f.tb.Context(), os.Args[0]) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childEnv+"="+f.db)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			err = cmd.Start()
			c := &child{cmd: cmd, in: in, under: map[string][]turn{}}
			f.instances = append(f.instances, c)
			go f.read(c, out)
		}
	}
	if err != nil {
		f.tb.Fatal(err)
	}
	f.joins++
}

func (f *fleet) read(c *child, out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		f.events <- event{from: c, line: lines.Text()}
	}
	f.events <- event{from: c, err: c.cmd.Wait()}
}

// living are the instances that can be told something.
func (f *fleet) living() []*child {
	var list []*child
	for _, c := range f.instances {
		if c.ready && !c.gone {
			list = append(list, c)
		}
	}
	return list
}

// give lets instances publish as much as they should have under way.
func (f *fleet) give() {
	for {
		list := f.living()
		f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		gave := false
		for _, c := range list {
			if len(c.under) < 2 {
				if batch := f.take(); len(batch) > 0 {
					f.tell(c, batch)
					gave = true
				}
			}
		}
		if !gave {
			return
		}
	}
}

// take makes a batch of keys that are free.
func (f *fleet) take() []turn {
	if n := len(f.retry); n > 0 {
		batch := f.retry[n-1]
		f.retry = f.retry[:n-1]
		return batch
	}
	var batch []turn
	for len(batch) < f.batch && len(f.free) > 0 {
		i := f.rng.IntN(len(f.free))
		key := f.free[i]
		f.free[i] = f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.next[key]++
		batch = append(batch, turn{key, f.next[key]})
	}
	return batch
}

func (f *fleet) tell(c *child, batch []turn) {
	f.batches++
	id := fmt.Sprint(f.batches)
	c.under[id] = batch
	words := []string{id}
	for _, m := range batch {
		words = append(words, fmt.Sprintf("%s:%d", m.Key, m.N))
	}
	_, _ = fmt.Fprintln(c.in, strings.Join(words, " ")) // an error: it was killed, and its batches are tried again
}

// committed lets the keys of a batch go on.
func (f *fleet) committed(batch []turn) {
	for _, m := range batch {
		f.left--
		if m.N < f.each {
			f.free = append(f.free, m.Key)
		}
	}
}

// handle answers what an instance says.
func (f *fleet) handle(e event) {
	f.tb.Helper()
	verb, rest, _ := strings.Cut(e.line, " ")
	id, why, _ := strings.Cut(rest, " ")
	switch verb {
	case "ready":
		e.from.ready = true
	case "done":
		f.committed(e.from.under[id])
		delete(e.from.under, id)
	case "failed":
		batch := e.from.under[id]
		delete(e.from.under, id)
		f.tb.Logf("publish: %s", why)
		f.unknown(batch)
	case "":
		if !e.from.gone {
			f.tb.Fatalf("an instance has ended by itself: %v", e.err)
		}
		for _, batch := range e.from.under {
			f.unknown(batch)
		}
		e.from.under, e.from.ready = nil, false
	}
}

// unknown is for a batch whose commit has no answer: what is there was
// committed, the rest is tried again. A commit that comes even later makes that
// fail, and is seen then.
func (f *fleet) unknown(batch []turn) {
	f.tb.Helper()
	var again []turn
	for _, m := range batch {
		var n int
		if err := f.look.Raw(`SELECT count(*) FROM sent WHERE k = ? AND n = ?`, m.Key, m.N).Scan(&n).Error; err != nil {
			f.tb.Fatal(err)
		}
		if n > 0 {
			f.committed([]turn{m})
		} else {
			again = append(again, m)
		}
	}
	if len(again) > 0 {
		f.retry = append(f.retry, again)
	}
}

// disturb kills an instance, or lets it leave, and another one join.
func (f *fleet) disturb() {
	f.tb.Helper()
	list := f.living()
	if len(list) < 2 {
		return
	}
	c := list[f.rng.IntN(len(list))]
	c.gone = true
	if f.rng.IntN(3) == 0 {
		f.leaves++
		_, _ = fmt.Fprintln(c.in, "stop")
	} else {
		f.kills++
		if err := c.cmd.Process.Kill(); err != nil {
			f.tb.Error(err)
		}
	}
	f.join()
}

// leave ends all instances.
func (f *fleet) leave(ctx context.Context) {
	f.tb.Helper()
	open := 0
	for _, c := range f.instances {
		if c.ready && !c.gone {
			c.gone = true
			_, _ = fmt.Fprintln(c.in, "stop")
		}
		if c.under != nil {
			open++
		}
	}
	for open > 0 {
		select {
		case e := <-f.events:
			if e.line == "" {
				e.from.under = nil
				open--
			} else if strings.HasPrefix(e.line, "ready") {
				_, _ = fmt.Fprintln(e.from.in, "stop")
				e.from.gone = true
			}
		case <-ctx.Done():
			f.tb.Fatal("an instance does not leave")
		}
	}
}
