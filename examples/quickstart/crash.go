package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

// holdBack lets the queue take nothing, as a broker that cannot be reached: so it
// is certain that what is committed from now on is not sent.
func holdBack(q *memqueue.Queue) {
	q.SetFaults(memqueue.Faults{Refuse: func(*transport.Message) error {
		return fmt.Errorf("held back by -crash: %w", transport.ErrUnavailable)
	}})
}

// dieAfterCommit kills the process once a change has been committed and answered.
func dieAfterCommit(next http.Handler, status monitor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(a, r)
		if r.Method != http.MethodPost && r.Method != http.MethodDelete || a.status >= http.StatusMultipleChoices {
			return // nothing was changed
		}
		_ = http.NewResponseController(w).Flush() // the client hears of success; if it has gone, so be it
		fmt.Printf(`The change is committed, and messages committed but not sent: %d.
This process kills itself now. The next start sends them, within 5 seconds; look at the page then:

  %s

`, status.unsent(), command())
		kill()
	})
}

// answer remembers the status of a response.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// kill ends the process at once: no deferred call runs, nothing is said to the
// database.
func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // SIGKILL, TerminateProcess on Windows
	}
	os.Exit(1) // where a process cannot do that
}
