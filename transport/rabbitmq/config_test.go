package rabbitmq_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/rabbitmq"
)

func TestValidateNamesEverything(t *testing.T) {
	t.Parallel()
	if err := rabbitmq.New(rabbitmq.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	err := rabbitmq.New(rabbitmq.Config{
		URL: "http://host", Hosts: []string{"host"}, Exchange: strings.Repeat("x", 250), Queue: 7,
		Channels: -1, Window: -1, MaxMessageBytes: -1, ConfirmTimeout: -1, DialTimeout: -1, RefreshInterval: -1,
		AMQP: wmamqp.Config{
			Publish: wmamqp.PublishConfig{Immediate: true, Transactional: true},
			Consume: wmamqp.ConsumeConfig{NoRequeueOnNack: true, NoWait: true},
		},
	}).Validate()
	for _, want := range []string{
		"URL", "Hosts", "Exchange", "Queue", "Channels", "Window", "MaxMessageBytes", "ConfirmTimeout", "DialTimeout",
		"RefreshInterval", "Immediate", "Transactional", "NoRequeueOnNack", "NoWait",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
	quorum := wmamqp.NewNonDurableTopicConfig("", "x", "q")
	if err := rabbitmq.New(rabbitmq.FromWatermill(quorum)).Validate(); err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a quorum queue that is not durable: %v", err)
	}
	unnamed := wmamqp.NewDurableQueueConfig("")
	if err := rabbitmq.New(rabbitmq.FromWatermill(unnamed)).Validate(); err == nil || !strings.Contains(err.Error(), "default exchange") {
		t.Errorf("the default exchange: %v", err)
	}
}

// TestNoSecretGetsOut: whatever is printed, logged or returned, the password is
// not in it.
func TestNoSecretGetsOut(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, url := range []string{
		"amqp://guest:" + secret + "@127.0.0.1:1/",                           // nobody listens
		strings.Replace(brokerURL(), "guest:guest@", "guest:"+secret+"@", 1), // refused
		"amqp://guest:" + secret + "@ho st/", "amqp://guest:" + secret + "@host:port/", "amqp://gu%est:" + secret + "@host/",
		"amqps://guest:" + secret + "@127.0.0.1:1/?heartbeat=" + secret,
	} {
		cfg := rabbitmq.Config{URL: url, Logger: logger}
		tr := rabbitmq.New(cfg)
		t.Cleanup(func() { _ = tr.Close() })
		src := transport.Source{Group: "g", Topics: []string{"a"}, Window: 1}
		declared := tr.Declare(t.Context(), src)
		if !errors.Is(declared, transport.ErrUnavailable) {
			t.Errorf("declare: %v, want ErrUnavailable", declared)
		}
		logger.Info("config", "config", cfg, "transport", tr, "traits", tr.Traits())
		for _, text := range []string{
			fmt.Sprint(declared), fmt.Sprint(tr.Send(t.Context(), []*transport.Message{message("a", "")})), fmt.Sprint(tr.Check(t.Context())),
			fmt.Sprint(tr.Validate()), fmt.Sprintf("%v %+v %#v %s", cfg, cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v", tr, tr, tr), fmt.Sprintf("%+v", tr.Traits()),
		} {
			if strings.Contains(text, secret) {
				t.Errorf("the password is in %q", text)
			}
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the password is in the log: %s", log.String())
	}
}
