package watermill

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport"
)

// While the broker is dead a Send costs no attempt; afterwards everything that was
// stored arrives, by the same receiver.
func TestBrokerDiesAndComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t)
	tr := start(t, openNATSAt(t, server.DSN))
	got := make(chan string, 1000)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		src := transport.Source{Group: "g", Topics: []string{"t"}, Window: 10}
		deliver := func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				got <- d.Message().ID
				_ = d.Ack() // lost with the connection or not: then it comes again
			}
		}
		for ctx.Err() == nil { // as the engine does
			if err := tr.Receive(ctx, src, deliver); err != nil {
				t.Logf("receive: %v", err)
			}
		}
		close(done)
	}()

	send := func(id string) error {
		return tr.Send(t.Context(), []*transport.Message{{ID: id, Topic: "t", Body: []byte(id)}})[0]
	}
	check(t, send("before"))
	<-got
	check(t, server.Kill())
	if err := send("during"); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("while the broker is dead: %v, want ErrUnavailable", err)
	}
	check(t, server.Start(t.Context()))
	missing := map[string]bool{}
	for _, id := range []string{"during", "after-1", "after-2"} {
		missing[id] = true
		for err := send(id); err != nil; err = send(id) {
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	overdue := time.After(wait)
	for len(missing) > 0 {
		select {
		case id := <-got:
			delete(missing, id)
		case <-overdue:
			t.Fatalf("%v did not arrive", missing)
		}
	}
	stop()
	<-done
}
