package transporttest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/capbus/gocap/transport"
)

// Bench measures a transport: messages a second from Send to Ack, by the number
// of messages in one Send and of Sends at once. The receiver acks at once. Open
// is as in Suite.
func Bench(b *testing.B, open func(b *testing.B) transport.Transport) {
	b.Helper()
	for _, load := range []struct{ batch, senders int }{{1, 1}, {100, 1}, {100, 4}} {
		b.Run(fmt.Sprintf("batch=%d/senders=%d", load.batch, load.senders), func(b *testing.B) {
			benchLoad(b, open(b), load.batch, load.senders)
		})
	}
}

func benchLoad(b *testing.B, tr transport.Transport, batch, senders int) {
	b.Helper()
	e := newEnv(b, tr, DefaultWait)
	e.start("g", 2*batch*senders, func(_ context.Context, d *delivery) { d.ack() }, "bench.a").sync()
	body := string(make([]byte, 500))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N { // one operation is a batch by each sender
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() { benchSend(e, batch, body) })
		}
		wg.Wait()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N*batch*senders)/b.Elapsed().Seconds(), "msgs/s")
}

func benchSend(e *env, batch int, body string) {
	msgs := make([]*transport.Message, batch)
	for i := range msgs {
		msgs[i] = e.message("bench.a", body)
	}
	for i, err := range e.tr.Send(e.Context(), msgs) {
		if err != nil {
			e.Errorf("message %d: %v", i, err)
		}
	}
}
