package rabbitmq_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/capbus/gocap/internal/ids"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
	"github.com/capbus/gocap/transport/transporttest"
)

// wait bounds every wait of a test for one event.
const wait = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brokerURL is the broker that all tests share. They leave nothing there, and
// never stop it or make it raise an alarm.
func brokerURL() string {
	return cmp.Or(os.Getenv("GOCAP_RABBITMQ_URL"), "amqp://guest:guest@127.0.0.1:5672/")
}

func brokerHost(tb testing.TB) string {
	tb.Helper()
	u, err := amqp091.ParseURI(brokerURL())
	if err != nil {
		tb.Fatal(err)
	}
	return net.JoinHostPort(u.Host, fmt.Sprint(u.Port))
}

// through is the address of the shared broker by way of a cutter.
func through(tb testing.TB, c *cutter) string {
	tb.Helper()
	u, err := url.Parse(brokerURL())
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = c.addr()
	return u.String()
}

func newID() string {
	id := ids.New()
	return fmt.Sprintf("%x", id[:])
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]rabbitmq.QueueKind{"quorum": rabbitmq.Quorum, "classic": rabbitmq.Classic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutters := sync.Map{}
			transporttest.Suite{
				Open: func(t *testing.T) transport.Transport {
					t.Helper()
					c := newCutter(t, brokerHost(t))
					tr := open(t, rabbitmq.Config{Queue: kind, URL: through(t, c)})
					cutters.Store(transport.Transport(tr), c)
					return tr
				},
				Cut: func(t *testing.T, tr transport.Transport) {
					t.Helper()
					c, _ := cutters.Load(tr)
					c.(*cutter).cut()
				},
			}.Run(t)
		})
	}
}

func BenchmarkTransport(b *testing.B) {
	for name, kind := range map[string]rabbitmq.QueueKind{"quorum": rabbitmq.Quorum, "classic": rabbitmq.Classic} {
		b.Run(name, func(b *testing.B) {
			transporttest.Bench(b, func(b *testing.B) transport.Transport {
				b.Helper()
				return open(b, rabbitmq.Config{Queue: kind})
			})
		})
	}
}

// tidy is a Transport that remembers its groups, to delete their queues.
type tidy struct {
	*rabbitmq.Transport

	groups sync.Map
}

func (t *tidy) Receive(ctx context.Context, src transport.Source, deliver func(context.Context, []transport.Delivery)) error {
	t.groups.Store(src.Group, nil)
	return t.Transport.Receive(ctx, src, deliver)
}

func (t *tidy) Declare(ctx context.Context, src transport.Source) error {
	t.groups.Store(src.Group, nil)
	return t.Transport.Declare(ctx, src)
}

// open returns a transport with an exchange of its own on the shared broker,
// unless cfg says where.
func open(tb testing.TB, cfg rabbitmq.Config) *tidy {
	tb.Helper()
	cfg.URL = cmp.Or(cfg.URL, brokerURL())
	cfg.Exchange = cmp.Or(cfg.Exchange, "gocap-test-"+newID())
	tr := &tidy{Transport: rabbitmq.New(cfg)}
	if err := tr.Validate(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := tr.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
		raw := rawDial(tb, brokerURL())
		defer raw.close()
		tr.groups.Range(func(group, _ any) bool {
			for _, suffix := range []string{"", ".retry", ".dlq"} {
				raw.deleteQueue(group.(string) + suffix)
			}
			return true
		})
		raw.deleteExchange(cfg.Exchange)
	})
	return tr
}

// raw is an independent client.
type raw struct {
	tb   testing.TB
	conn *amqp091.Connection
}

func rawDial(tb testing.TB, url string) *raw {
	tb.Helper()
	c, err := amqp091.Dial(url)
	if err != nil {
		tb.Fatalf("RabbitMQ is needed at GOCAP_RABBITMQ_URL: %v", err)
	}
	return &raw{tb: tb, conn: c}
}

func (r *raw) close() { _ = r.conn.CloseDeadline(time.Now().Add(5 * time.Second)) }

// on runs f on a channel of its own.
func (r *raw) on(f func(ch *amqp091.Channel) error) {
	r.tb.Helper()
	ch, err := r.conn.Channel()
	if err == nil {
		err = f(ch)
		_ = ch.Close()
	}
	if err != nil {
		r.tb.Errorf("independent client: %v", err)
	}
}

func (r *raw) deleteQueue(name string) {
	r.tb.Helper()
	r.on(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
}

func (r *raw) deleteExchange(name string) {
	r.tb.Helper()
	r.on(func(ch *amqp091.Channel) error { return ch.ExchangeDelete(name, false, false) })
}
