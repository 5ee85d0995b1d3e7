package cap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/memqueue"
)

// healthHandler answers at /livez, /readyz and /health.
func healthHandler(bus *cap.Bus) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := bus.Health(r.Context())
		well := map[string]bool{"/livez": h.Alive, "/readyz": h.Ready, "/health": h.OK}
		w.Header().Set("Content-Type", "application/json")
		if !well[r.URL.Path] {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
}

// A handler for an orchestrator's probes: a process that does not live is
// restarted, one that is not ready gets no requests.
func ExampleBus_Health() {
	bus, _ := cap.New(cap.Options{
		Storage: memstore.New(memstore.Config{}), Transport: memqueue.New(memqueue.Config{}), Registry: &subscribe.Registry{},
	})
	handler := healthHandler(bus)
	ask := func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, http.NoBody))
		return w.Code
	}
	fmt.Println("before Start:", ask("/livez"), ask("/readyz"), bus.Health(context.Background()).Reasons)

	_ = bus.Start(context.Background())
	fmt.Println("running:", ask("/livez"), ask("/readyz"), ask("/health"))
	_ = bus.Stop(context.Background())
	// Output:
	// before Start: 200 503 [the bus does not run]
	// running: 200 200 200
}
