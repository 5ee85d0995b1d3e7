package wmadapter_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/transporttest"
	"github.com/capbus/gocap/transport/wmadapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite on gochannel. The other backends need servers, and
// modules that users of this package need not download: integration/watermill.
func TestConformance(t *testing.T) {
	t.Parallel()
	transporttest.Run(t, func(t *testing.T) transport.Transport {
		t.Helper()
		return open(t, gochannel.Config{})
	})
}

func open(tb testing.TB, cfg gochannel.Config) *wmadapter.Transport {
	tb.Helper()
	ch := gochannel.NewGoChannel(cfg, nil)
	tr := wmadapter.New(wmadapter.Config{
		Name: "gochannel", Publisher: ch, Subscriber: wmadapter.Shared(ch), NoQueue: true, InFlight: true,
	})
	if err := tr.Validate(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := tr.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return tr
}

func BenchmarkTransport(b *testing.B) {
	transporttest.Bench(b, func(b *testing.B) transport.Transport {
		b.Helper()
		return open(b, gochannel.Config{})
	})
}
