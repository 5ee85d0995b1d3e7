package cap_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
)

func TestStartTakesTheRegistryAndStopGivesItBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		reg := &subscribe.Registry{}
		r := newRig(t, cap.Options{Registry: reg})
		second := r.again(t, cap.Options{Registry: reg})
		if err := reg.Add(subscribe.To("a", j.handler)); err != nil {
			t.Fatalf("Add after New: %v", err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := reg.Add(subscribe.To("b", j.handler)); !errors.Is(err, subscribe.ErrRegistryInUse) {
			t.Errorf("Add while a bus runs: %v, want ErrRegistryInUse", err)
		}
		if err := second.Start(t.Context()); !errors.Is(err, subscribe.ErrRegistryInUse) {
			t.Errorf("a second bus on the registry: %v, want ErrRegistryInUse", err)
		}
		if err := reg.Add(subscribe.To("b", j.handler)); !errors.Is(err, subscribe.ErrRegistryInUse) {
			t.Errorf("Add after a second Start was refused: %v, want ErrRegistryInUse still", err)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := reg.Add(subscribe.To("b", j.handler)); err != nil {
			t.Errorf("Add after Stop: %v", err)
		}
		second.start(t)
		for _, topic := range []string{"a", "b"} {
			if err := second.Publish(t.Context(), cap.NoTx, topic, topic); err != nil {
				t.Fatal(err)
			}
		}
		j.wait(t, 2)
	})
}

func TestTheRegistryIsBusyUntilStopHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := &subscribe.Registry{}
		j := newJournal()
		release := make(chan struct{})
		r := working(t, cap.Options{Registry: reg}, j.blocking(release))
		stopped := make(chan error)
		go func() { stopped <- r.Stop(t.Context()) }()
		synctest.Wait()
		if err := reg.Add(subscribe.To("b", j.handler)); !errors.Is(err, subscribe.ErrRegistryInUse) {
			t.Errorf("Add while Stop waits: %v, want ErrRegistryInUse", err)
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if err := reg.Add(subscribe.To("b", j.handler)); err != nil {
			t.Errorf("Add after Stop: %v", err)
		}
	})
}

// mustPanic returns what f panics with.
func mustPanic(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		p := recover()
		if p == nil {
			t.Fatal("no panic")
		}
		var ok bool
		if text, ok = p.(string); !ok || !strings.HasPrefix(text, "cap: ") {
			t.Errorf("panic with %v (%T), want a text that begins with cap:", p, p)
		}
	}()
	f()
	return ""
}

// One test for all that concerns the default registry and bus: both are global.
func TestTheDefaultBusServesTheDefaultRegistry(t *testing.T) { //nolint:paralleltest // the default registry and bus are global
	j := newJournal()
	shared := newRig(t, cap.Options{}) // with a registry of its own: never the default
	if b := cap.Default(); b != nil {
		t.Fatalf("a bus with a registry of its own became the default")
	}
	topic := "default." + cap.NewID() // the registry keeps it, also when the test runs again
	cap.Subscribe(topic, j.handler, subscribe.Group("default"))

	opts := cap.Options{Storage: shared.store, Transport: shared.queue, Logger: quietLogger()}
	first, err := cap.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if cap.Default() != first {
		t.Fatal("New did not make the first bus the default")
	}
	if _, err = cap.New(opts); err != nil || cap.Default() != first {
		t.Fatalf("a second bus: %v, and the default is another", err)
	}
	if err := cap.Publish(t.Context(), cap.NoTx, topic, "before Start"); err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cap.PublishMany(t.Context(), cap.NoTx, cap.Outgoing{Topic: topic, Msg: "running"}); err != nil {
		t.Fatal(err)
	}
	j.wait(t, 2)

	if text := mustPanic(t, func() { cap.Subscribe("another", j.handler) }); !strings.Contains(text, "in use") {
		t.Errorf("while a bus runs: %q", text)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cap.Default() != nil {
		t.Error("Stop did not take the default back")
	}
	if err := cap.Publish(t.Context(), cap.NoTx, topic, "stopped"); !errors.Is(err, cap.ErrNoBus) {
		t.Errorf("Publish after Stop: %v, want ErrNoBus", err)
	}
	if text := mustPanic(t, func() { cap.Subscribe(topic, j.handler, subscribe.Group("default")) }); strings.Count(text, "registry_test.go:") != 2 {
		t.Errorf("duplicate: %q does not name both places", text)
	}
	if text := mustPanic(t, func() { cap.Subscribe("", j.handler) }); !strings.Contains(text, "topic is empty") || !strings.Contains(text, "registry_test.go:") {
		t.Errorf("empty topic: %q", text)
	}
	if text := mustPanic(t, func() { cap.Subscribe[string]("t", nil) }); !strings.Contains(text, "handler is nil") {
		t.Errorf("nil handler: %q", text)
	}

	// Started again it is the default again; SetDefault goes before.
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cap.Default() != first {
		t.Error("Start after Stop did not make the bus the default again")
	}
	cap.SetDefault(shared.Bus)
	if cap.Default() != shared.Bus {
		t.Error("SetDefault did not override")
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cap.Default() != shared.Bus {
		t.Error("Stop took back a default that was another bus")
	}
	cap.SetDefault(nil)
	if cap.Default() != nil {
		t.Error("SetDefault(nil) did not take it back")
	}
}
