package rabbitmq_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// TestHostsAreTriedInTurn: of a cluster whose first node is away.
func TestHostsAreTriedInTurn(t *testing.T) {
	t.Parallel()
	u, err := amqp091.ParseURI(brokerURL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.Port = "127.0.0.1", 1 // nobody listens
	tr := open(t, rabbitmq.Config{URL: u.String(), Hosts: []string{"127.0.0.1:2", brokerHost(t)}})
	if err := tr.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	alone := rabbitmq.New(rabbitmq.Config{URL: u.String(), Hosts: []string{"127.0.0.1:2"}})
	defer func() { _ = alone.Close() }()
	err = alone.Check(t.Context())
	for _, host := range []string{"127.0.0.1:1", "127.0.0.1:2"} {
		if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), host) {
			t.Errorf("check: %v, want ErrUnavailable naming %s", err, host)
		}
	}
}

// TestTwoConnections, however many groups receive and Sends run.
func TestTwoConnections(t *testing.T) {
	t.Parallel()
	c := newCutter(t, brokerHost(t))
	tr := open(t, rabbitmq.Config{URL: through(t, c)})
	for range 10 {
		receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}})
	}
	done := make(chan []error)
	for range 20 {
		go func() { done <- tr.Send(t.Context(), []*transport.Message{message("a", "")}) }()
	}
	for range 20 {
		stored(t, <-done)
	}
	if n := c.made(); n != 2 {
		t.Errorf("%d connections were made, want 2", n)
	}
}

// TestBrokerThatDoesNotAnswer: every call ends in its time, and a time-out is told
// from a context that has ended.
func TestBrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := newCutter(t, brokerHost(t))
	tr := open(t, rabbitmq.Config{URL: through(t, c), ConfirmTimeout: time.Second})
	src := transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}, Window: 1}
	if err := tr.Declare(t.Context(), src); err != nil { // nobody receives: the test is about requests
		t.Fatal(err)
	}
	stored(t, tr.Send(t.Context(), []*transport.Message{message("a", "")}))
	c.hold()
	begun := time.Now()
	err := tr.Send(t.Context(), []*transport.Message{message("a", "")})[0]
	if err == nil || errors.Is(err, transport.ErrUnavailable) || errors.Is(err, transport.ErrRejected) {
		t.Errorf("not confirmed in time: %v, want an unknown outcome", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for name, call := range map[string]func() error{
		"send":    func() error { return tr.Send(ctx, []*transport.Message{message("a", "")})[0] },
		"check":   func() error { return tr.Check(ctx) },
		"declare": func() error { return tr.Declare(ctx, src) },
	} {
		if err := call(); !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestTLS against a node of the test's own.
func TestTLS(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	certs := t.TempDir()
	pool := certificate(t, certs)
	n := newNode(t,
		"listeners.ssl.default = 127.0.0.1:"+port,
		"ssl_options.certfile = "+filepath.Join(certs, "cert.pem"), "ssl_options.keyfile = "+filepath.Join(certs, "key.pem"),
		"ssl_options.cacertfile = "+filepath.Join(certs, "cert.pem"), "ssl_options.verify = verify_none",
	)
	n.start()
	url := "amqps://127.0.0.1:" + port + "/"
	tr := onNode(t, n, rabbitmq.Config{URL: url, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	f := newTraffic(t, tr)
	f.send(200, 50)
	f.complete(200)
	f.stop()
	stranger := onNode(t, n, rabbitmq.Config{URL: url})
	if err := stranger.Check(t.Context()); !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}

// certificate writes one for 127.0.0.1, and its key.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(dir, "cert.pem"), string(cert))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// stuck is a TopologyBuilder that hangs for one group, as a queue does whose nodes
// have no leader.
type stuck struct {
	wmamqp.DefaultTopologyBuilder

	queue string
	until chan struct{}
}

func (s *stuck) BuildTopology(ch *amqp091.Channel, p wmamqp.BuildTopologyParams, c wmamqp.Config, l watermill.LoggerAdapter) error {
	if p.QueueName == s.queue {
		<-s.until
	}
	return s.DefaultTopologyBuilder.BuildTopology(ch, p, c, l)
}

// TestOneQueueThatHangs does not take the connection from the others.
func TestOneQueueThatHangs(t *testing.T) {
	t.Parallel()
	s := &stuck{queue: "gocap-test-" + newID(), until: make(chan struct{})}
	c := newCutter(t, brokerHost(t))
	tr := open(t, rabbitmq.Config{URL: through(t, c), AMQP: wmamqp.Config{TopologyBuilder: s}})
	t.Cleanup(func() { close(s.until) })
	other := receive(t, tr, transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"a"}})
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begun := time.Now()
		err := tr.Declare(ctx, transport.Source{Group: s.queue, Topics: []string{"b"}})
		if took := time.Since(begun); !errors.Is(err, transport.ErrUnavailable) || took > 5*time.Second {
			t.Errorf("declare: %v after %v, want ErrUnavailable soon", err, took)
		}
		cancel()
		stored(t, tr.Send(t.Context(), []*transport.Message{message("a", "")}))
		other.nextAcked()
	}
	if n := c.made(); n != 2 {
		t.Errorf("%d connections were made, want 2", n)
	}
}
