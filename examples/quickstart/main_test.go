package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

//nolint:paralleltest // the stories are parallel, where the linter does not look
func TestQuickstart(t *testing.T) {
	t.Parallel()
	s := stories{bin: build(t)}
	t.Run("tables stay in step, and SIGTERM ends it cleanly", s.stayInStep)
	t.Run("what a crash left behind is sent by the next start", s.crashAndRestart)
	t.Run("a kill amid the handlers loses and repeats nothing", s.killAmidHandlers)
	t.Run("bad requests get a clear answer and change nothing", s.badRequests)
	t.Run("a taken port is told, with the flag that changes it", s.takenPort)
}

// stories are the tests of the built program.
type stories struct{ bin string }

func (s stories) stayInStep(t *testing.T) {
	t.Parallel()
	p := start(t, s.bin, "-db", filepath.Join(t.TempDir(), "shop.db"))
	for i, name := range []string{"Tea", "Grüner Tee 茶 🍵", "<b>Coffee</b>"} {
		status, text := p.request(t, http.MethodPost, "/products", fmt.Sprintf(`{"name":%q}`, name))
		if want := fmt.Sprintf(`{"id":%d,`, i+1); status != http.StatusCreated || !strings.HasPrefix(text, want) {
			t.Fatalf("create %s: %d %s", name, status, text)
		}
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if status, text := p.request(t, http.MethodDelete, "/products/1", ""); status != want {
			t.Fatalf("delete: %d %s, want %d", status, text, want)
		}
	}
	r := p.settled(t, 4)
	checkInStep(t, r, 2)
	for _, m := range r.Messages {
		if m.Topic != "product.created" {
			continue
		}
		if files := m.Groups["files"]; files.Attempts != 3 || !strings.Contains(files.Error, "attempt 2") {
			t.Errorf("%s in group files: %+v, want success at the third attempt", m.Body, files)
		}
		if n := m.Groups["coupon"].Attempts; n != 1 {
			t.Errorf("%s in group coupon: %d attempts, want 1", m.Body, n)
		}
	}
	if status, text := p.request(t, http.MethodGet, "/", ""); status != http.StatusOK || !strings.Contains(text, "gocap quickstart") {
		t.Errorf("page: %d %.80s", status, text)
	}
	if runtime.GOOS == "windows" {
		return // knows no SIGTERM
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state := p.wait(t); !state.Success() {
		t.Errorf("after SIGTERM: %s\n%s", state, &p.stderr)
	}
}

func (s stories) crashAndRestart(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "shop.db")
	p := start(t, s.bin, "-db", db, "-crash")
	if status, text := p.request(t, http.MethodPost, "/products", `{"name":" "}`); status != http.StatusBadRequest {
		t.Fatalf("a request that changes nothing: %d %s", status, text)
	}
	if status, text := p.request(t, http.MethodPost, "/products", `{"name":"Tea"}`); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, text)
	}
	if state := p.wait(t); state.Success() {
		t.Fatalf("the process ended by itself with %s, want a kill", state)
	}
	if want := "not sent: 1"; !strings.Contains(p.stdout.String(), want) {
		t.Errorf("the terminal does not say %q:\n%s", want, &p.stdout)
	}

	p = start(t, s.bin, "-db", db)
	r := p.settled(t, 1)
	checkInStep(t, r, 1)
	m := r.Messages[0]
	if !m.Outbox.Added.Before(r.Started) || m.Outbox.Attempts != 1 {
		t.Errorf("outbox: %+v, want a message from before %s, sent once", m.Outbox, r.Started)
	}
	for group, in := range m.Groups {
		if in.Added.Before(r.Started) {
			t.Errorf("group %s received it at %s, before the restart at %s", group, in.Added, r.Started)
		}
	}
}

func (s stories) badRequests(t *testing.T) {
	t.Parallel()
	p := start(t, s.bin, "-db", filepath.Join(t.TempDir(), "shop.db"))
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/products", "", http.StatusBadRequest},
		{http.MethodPost, "/products", "[]", http.StatusBadRequest},
		{http.MethodPost, "/products", `{"name":""}`, http.StatusBadRequest},
		{http.MethodPost, "/products", `{"name":"a\u0000"}`, http.StatusBadRequest},
		{http.MethodPost, "/products", `{"nom":"Tea"}`, http.StatusBadRequest},
		{http.MethodPost, "/products", `{"name":"Tea"} {}`, http.StatusBadRequest},
		{http.MethodPost, "/products", `{"name":"` + strings.Repeat("x", 101) + `"}`, http.StatusBadRequest},
		{http.MethodPost, "/products", `{"name":"` + strings.Repeat("x", maxBody) + `"}`, http.StatusRequestEntityTooLarge},
		{http.MethodPut, "/products", `{"name":"Tea"}`, http.StatusMethodNotAllowed},
		{http.MethodGet, "/products/1", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "/", "", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/products/one", "", http.StatusBadRequest},
		{http.MethodDelete, "/products/1", "", http.StatusNotFound},
		{http.MethodGet, "/orders", "", http.StatusNotFound},
	} {
		status, text := p.request(t, c.method, c.path, c.body)
		if status != c.status || !strings.HasPrefix(text, `{"error":"`) {
			t.Errorf("%s %s %.40s: %d %s, want %d and an error as JSON", c.method, c.path, c.body, status, text, c.status)
		}
	}
	if r := p.report(t); r.Tables != (tables{}) {
		t.Errorf("bad requests have left %+v", r.Tables)
	}
}

func (s stories) takenPort(t *testing.T) {
	t.Parallel()
	p := start(t, s.bin, "-db", filepath.Join(t.TempDir(), "shop.db"))
	second := program(t, s.bin, "-addr", strings.TrimPrefix(p.url, "http://"), "-db", filepath.Join(t.TempDir(), "other.db"))
	text, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "-addr 127.0.0.1:8081") {
		t.Errorf("second start on the same port: %v\n%s", err, text)
	}
}

func (s stories) killAmidHandlers(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "shop.db")
	p := start(t, s.bin, "-db", db)
	const n = 40
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if status, text := p.request(t, http.MethodPost, "/products", `{"name":"Tea"}`); status != http.StatusCreated {
				t.Errorf("create: %d %s", status, text)
			}
		})
	}
	wg.Wait()
	if err := p.cmd.Process.Signal(os.Kill); err != nil { // handlers are under way
		t.Fatal(err)
	}
	p.wait(t)
	p = start(t, s.bin, "-db", db)
	checkInStep(t, p.settled(t, n), n)
}

// checkInStep fails unless each product has one coupon and two files, and nothing
// else is there.
func checkInStep(t *testing.T, r report, products int) {
	t.Helper()
	if r.Tables.Products != products || r.Tables.Coupons != products || r.Tables.Files != 2*products {
		t.Errorf("%+v, want %d products, with a coupon and two files each", r.Tables, products)
	}
	for _, p := range r.Products {
		if p.Coupons == "" || strings.Contains(p.Coupons, ",") || strings.Count(p.Files, ",") != 1 {
			t.Errorf("product %d has coupons %q and files %q, want one and two", p.ID, p.Coupons, p.Files)
		}
	}
}
