package rabbitmq_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// load is how many messages are under way: GOCAP_FAULT_MESSAGES, else n.
func load(t *testing.T, n int) int {
	t.Helper()
	text, set := os.LookupEnv("GOCAP_FAULT_MESSAGES")
	if !set {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// onNode returns a transport on a node of the test's own.
func onNode(t *testing.T, n *node, cfg rabbitmq.Config) *rabbitmq.Transport {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = n.url()
	}
	tr := rabbitmq.New(cfg)
	if err := tr.Validate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// TestFaults breaks a broker while many messages are under way: all arrive, none
// is charged with an attempt, and they move again within 2 s of an independent
// client's success. One node serves all cases, one after another. With
// GOCAP_FAULT_MESSAGES=50000 there are as many in each.
func TestFaults(t *testing.T) {
	t.Parallel()
	n := newNode(t, "consumer_timeout = 2000")
	for _, c := range []struct { //nolint:paralleltest // they share one node
		name string
		run  func(t *testing.T, n *node)
	}{
		{"broker absent at start", faultAbsent},
		{"broker restarted", faultRestart},
		{"broker killed", faultKill},
		{"connection cut", faultCut},
		{"connections closed by the broker", faultClosed},
		{"exchange deleted", faultExchange},
		{"queue deleted", faultQueue},
		{"channel closed by the broker", faultTimeout},
		{"memory alarm", faultAlarm},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.t = t
			if n.cmd == nil && c.name != "broker absent at start" {
				n.start()
			}
			c.run(t, n)
		})
	}
}

func faultAbsent(t *testing.T, n *node) {
	t.Helper()
	tr := onNode(t, n, rabbitmq.Config{})
	f := newTraffic(t, tr)
	if err := tr.Declare(t.Context(), f.source()); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("declare without a broker: %v, want ErrUnavailable", err)
	}
	if err := tr.Check(t.Context()); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("check without a broker: %v, want ErrUnavailable", err)
	}
	all := load(t, 500)
	f.send(all, 50)
	f.until("a send has failed", func() bool { return f.errs[transport.ErrUnavailable.Error()] > 100 })
	n.boot()
	f.resumed(n.up())
	f.complete(all)
}

func faultRestart(t *testing.T, n *node) {
	t.Helper()
	for _, kind := range []rabbitmq.QueueKind{rabbitmq.Quorum, rabbitmq.Classic} {
		f := newTraffic(t, onNode(t, n, rabbitmq.Config{Queue: kind}))
		each := load(t, 12000) / 3
		for range 3 {
			f.send(each, 100)
		}
		f.untilGot(1000)
		n.signal(syscall.SIGTERM)
		n.boot()
		f.resumed(n.up())
		f.complete(3 * each)
		f.stop()
	}
}

// faultKill has no quorum queue: killed soon after its declaration, the only
// member of one finds no leader any more with RabbitMQ 3.10, whoever asks.
func faultKill(t *testing.T, n *node) {
	t.Helper()
	f := newTraffic(t, onNode(t, n, rabbitmq.Config{Queue: rabbitmq.Classic}))
	each := load(t, 12000) / 3
	for range 3 {
		f.send(each, 100)
	}
	f.untilGot(1000)
	n.signal(syscall.SIGKILL)
	n.boot()
	f.resumed(n.up())
	f.complete(3 * each)
}

func faultCut(t *testing.T, n *node) {
	t.Helper()
	c := newCutter(t, n.host())
	f := newTraffic(t, onNode(t, n, rabbitmq.Config{URL: "amqp://guest:guest@" + c.addr() + "/"}))
	each := load(t, 12000) / 3
	for range 3 {
		f.send(each, 100)
	}
	for i := range 5 {
		f.untilGot(1000 * (i + 1))
		c.cut()
		f.resumed(n.up())
	}
	f.complete(3 * each)
}

func faultClosed(t *testing.T, n *node) {
	t.Helper()
	f := newTraffic(t, onNode(t, n, rabbitmq.Config{}))
	each := load(t, 18000) / 3
	for range 3 {
		f.send(each, 100)
	}
	f.untilGot(1000)
	n.ctl("close_all_connections", "test")
	f.resumed(n.up())
	f.complete(3 * each)
}

// faultExchange has the broker close the channels that publish (404), and takes
// the bindings away.
func faultExchange(t *testing.T, n *node) {
	t.Helper()
	f := newTraffic(t, onNode(t, n, rabbitmq.Config{RefreshInterval: 300 * time.Millisecond}))
	each := load(t, 12000) / 3
	for range 3 {
		f.send(each, 100)
	}
	r := rawDial(t, n.url())
	defer r.close()
	for i := range 4 {
		f.untilGot(500 * (i + 1))
		r.deleteExchange(rabbitmq.DefaultExchange)
		f.resumed(n.up())
	}
	f.complete(3 * each)
}

// faultQueue deletes the queue between two waves: what is in a queue goes with it.
func faultQueue(t *testing.T, n *node) {
	t.Helper()
	for _, kind := range []rabbitmq.QueueKind{rabbitmq.Quorum, rabbitmq.Classic} {
		f := newTraffic(t, onNode(t, n, rabbitmq.Config{Queue: kind}))
		r := rawDial(t, n.url())
		each := load(t, 6000) / 12
		for wave := range 4 {
			for range 3 {
				f.send(each, 50)
			}
			f.complete((3*each+50)*wave + 3*each)
			r.deleteQueue(f.group)
			f.send(50, 1)
			f.resumed(n.up())
			f.complete((3*each + 50) * (wave + 1))
		}
		r.close()
		f.stop()
	}
}

// faultTimeout has the broker close a channel that consumes, because its delivery
// was not answered for too long. Others go on.
func faultTimeout(t *testing.T, n *node) {
	t.Helper()
	tr := onNode(t, n, rabbitmq.Config{})
	f := newTraffic(t, tr)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	src := transport.Source{Group: "gocap-test-" + newID(), Topics: []string{"slow"}, Window: 1}
	if err := tr.Declare(ctx, src); err != nil {
		t.Fatal(err)
	}
	if err := tr.Send(ctx, []*transport.Message{message("slow", "")})[0]; err != nil {
		t.Fatal(err)
	}
	all := load(t, 2000)
	f.send(all, 20)
	var late transport.Delivery
	err := tr.Receive(ctx, src, func(dctx context.Context, batch []transport.Delivery) {
		late = batch[0]
		<-dctx.Done() // the end of the channel reaches whoever stores the batch
	})
	if ctx.Err() != nil || !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("receive: %v, want ErrUnavailable with the broker's cause", err)
	}
	if err := late.Ack(); err == nil {
		t.Error("an ack after the channel was closed is no error")
	}
	again, stop := context.WithCancel(ctx)
	if err := tr.Receive(again, src, func(_ context.Context, batch []transport.Delivery) {
		if err := batch[0].Ack(); err != nil {
			t.Error(err)
		}
		stop()
	}); err != nil || ctx.Err() != nil {
		t.Errorf("it did not come again: %v, %v", err, ctx.Err())
	}
	f.complete(all)
}

func faultAlarm(t *testing.T, n *node) {
	t.Helper()
	tr := onNode(t, n, rabbitmq.Config{})
	f := newTraffic(t, tr)
	each := load(t, 12000) / 3
	for range 3 {
		f.send(each, 100)
	}
	f.untilGot(1000)
	n.ctl("set_vm_memory_high_watermark", "absolute", "1")
	for range 3 {
		f.send(each, 100)
	}
	f.until("sends fail because the broker blocks", func() bool { return f.errs[transport.ErrUnavailable.Error()] > 200 })
	if err := tr.Check(t.Context()); !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("check while blocked: %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begun := time.Now()
	m := &transport.Message{ID: newID(), Topic: f.topic, Body: make([]byte, 8<<20)}
	if err := tr.Send(ctx, []*transport.Message{m, m, m})[0]; !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("send while blocked: %v, want ErrUnavailable", err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("a send whose context ended after 1s took %v", took)
	}
	n.ctl("set_vm_memory_high_watermark", "0.6")
	f.resumed(n.up())
	f.complete(6 * each)
}
