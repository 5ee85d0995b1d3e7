package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capbus/gocap/subscribe"
)

func nothing(context.Context, string) error { return nil }

func TestBadSubscriptionsSayWhatIsWrongAndWhereTheyAre(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		sub  subscribe.Subscription
		says []string
	}{
		"zero value":         {subscribe.Subscription{}, []string{"zero value", "subscribe.To"}},
		"empty topic":        {subscribe.To("", nothing), []string{"topic is empty"}},
		"long topic":         {subscribe.To(long, nothing), []string{"256 bytes", "255"}},
		"topic with NUL":     {subscribe.To("a\x00", nothing), []string{"NUL"}},
		"nil handler":        {subscribe.To[string]("t", nil), []string{"handler is nil"}},
		"nil option":         {subscribe.To("t", nothing, nil), []string{"an option is nil"}},
		"empty group":        {subscribe.To("t", nothing, subscribe.Group("")), []string{"Group: the name is empty"}},
		"long group":         {subscribe.To("t", nothing, subscribe.Group(long)), []string{"group has 256 bytes"}},
		"group of bad UTF-8": {subscribe.To("t", nothing, subscribe.Group("\xff")), []string{"group", "UTF-8"}},
		"empty name":         {subscribe.To("t", nothing, subscribe.Name("")), []string{"Name: the name is empty"}},
		"long name":          {subscribe.To("t", nothing, subscribe.Name(long)), []string{"name has 256 bytes"}},
		"group with newline": {subscribe.To("t", nothing, subscribe.Group("a\n")), []string{"group", "control character"}},
		"name with NUL":      {subscribe.To("t", nothing, subscribe.Name("\x00")), []string{"name", "NUL"}},
		"concurrency 0":      {subscribe.To("t", nothing, subscribe.Concurrency(0)), []string{"Concurrency: 0 is not at least 1"}},
		"timeout 0":          {subscribe.To("t", nothing, subscribe.Timeout(0)), []string{"Timeout: 0s is not positive"}},
		"count 0":            {subscribe.To("t", nothing, subscribe.FailedRetryCount(0)), []string{"FailedRetryCount: 0"}},
		"interval -1":        {subscribe.To("t", nothing, subscribe.FailedRetryInterval(-1)), []string{"FailedRetryInterval: -1ns"}},
		"nil backoff":        {subscribe.To("t", nothing, subscribe.RetryBackoff(nil)), []string{"RetryBackoff: the function is nil"}},
		"nil middleware":     {subscribe.To("t", nothing, subscribe.With(nil)), []string{"With: a middleware is nil"}},
		"several": {
			subscribe.To[string]("", nil, subscribe.Concurrency(-1), subscribe.Timeout(-time.Second)),
			[]string{"handler is nil", "topic is empty", "Concurrency: -1", "Timeout: -1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, err := range map[string]error{"Validate": c.sub.Validate(), "Add": (&subscribe.Registry{}).Add(c.sub)} {
				if err == nil {
					t.Fatalf("%s: no error", how)
				}
				says := c.says
				if name != "zero value" {
					says = append(says, "subscription_test.go:")
				}
				for _, text := range says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: %q does not say %q", how, err, text)
					}
				}
			}
		})
	}
}

func TestGoodSubscriptionsAreTaken(t *testing.T) {
	t.Parallel()
	for _, sub := range []subscribe.Subscription{
		subscribe.To(strings.Repeat("x", 255), nothing, subscribe.Group(strings.Repeat("g", 255)), subscribe.Name(strings.Repeat("n", 255))),
		subscribe.To("#", nothing),
		subscribe.To("*.b.#", nothing, subscribe.Concurrency(1), subscribe.Timeout(1), subscribe.FailedRetryCount(1), subscribe.FailedRetryInterval(1)),
		subscribe.To("t", nothing, subscribe.With()),
	} {
		if err := sub.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestAddTakesAllOrNone(t *testing.T) {
	t.Parallel()
	reg := &subscribe.Registry{}
	if err := reg.Add(subscribe.To("a", nothing), subscribe.To("b", nothing), subscribe.Subscription{}); err == nil {
		t.Fatal("Add with a bad one: no error")
	}
	if err := reg.Add(subscribe.To("a", nothing), subscribe.To("a", nothing)); err == nil {
		t.Fatal("Add with a duplicate: no error")
	}
	subs, release, err := reg.Use()
	if err != nil || len(subs) != 0 {
		t.Errorf("Use: %v, %v, want no subscription", subs, err)
	}
	if err := reg.Add(subscribe.To("a", nothing)); !errors.Is(err, subscribe.ErrRegistryInUse) {
		t.Errorf("Add while in use: %v, want ErrRegistryInUse", err)
	}
	if _, _, err := reg.Use(); !errors.Is(err, subscribe.ErrRegistryInUse) {
		t.Errorf("Use while in use: %v, want ErrRegistryInUse", err)
	}
	release()
	if err := reg.Add(subscribe.To("a", nothing)); err != nil {
		t.Errorf("Add after the release: %v", err)
	}
}

// first and second are made in two places.
func first() subscribe.Subscription {
	return subscribe.To("orders", nothing, subscribe.Group("g"))
}

func second() subscribe.Subscription {
	return subscribe.To("orders", nothing, subscribe.Group("g"))
}

func TestADuplicateNamesBothPlaces(t *testing.T) {
	t.Parallel()
	reg := &subscribe.Registry{}
	if err := reg.Add(first()); err != nil {
		t.Fatal(err)
	}
	err := reg.Add(second())
	if err == nil {
		t.Fatal("Add of a duplicate: no error")
	}
	for _, sub := range []subscribe.Subscription{first(), second()} {
		_, place, ok := strings.Cut(sub.String(), " at ")
		if !ok || !strings.Contains(place, "subscription_test.go:") || !strings.Contains(err.Error(), place) {
			t.Errorf("%q does not name the place %q", err, place)
		}
	}
	for _, text := range []string{`"orders"`, `group "g"`, "subscribe.Group", "subscribe.Name"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
	for _, other := range []subscribe.Subscription{
		subscribe.To("orders", nothing, subscribe.Group("h")),
		subscribe.To("orders", nothing),
		subscribe.To("orders", nothing, subscribe.Group("g"), subscribe.Name("another")),
		subscribe.To("orders.*", nothing, subscribe.Group("g")),
	} {
		if err := reg.Add(other); err != nil {
			t.Errorf("%v is no duplicate: %v", other, err)
		}
	}
	if err := reg.Add(subscribe.To("t", nothing, subscribe.Group("g"), subscribe.Name("orders"))); err == nil {
		t.Error("a name that is another's topic, in the same group: no error")
	}
}

func TestARegistryIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	reg := &subscribe.Registry{}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := reg.Add(subscribe.To(fmt.Sprint("t", i), nothing)); err != nil && !errors.Is(err, subscribe.ErrRegistryInUse) {
				t.Error(err)
			}
			if _, release, err := reg.Use(); err == nil {
				release()
			}
		})
	}
	all.Wait()
}

func TestControlErrorsAreSeenThrough(t *testing.T) {
	t.Parallel()
	cause := &causeError{7}
	for name, err := range map[string]error{
		"Reject":             subscribe.Reject(cause),
		"RetryAfter":         subscribe.RetryAfter(time.Second, cause),
		"Reject, wrapped":    fmt.Errorf("order 7: %w", subscribe.Reject(cause)),
		"Reject of a joined": subscribe.Reject(errors.Join(errors.New("other"), cause)),
	} {
		var as *causeError
		if !errors.Is(err, cause) || !errors.As(err, &as) || as.code != 7 {
			t.Errorf("%s: errors.Is and As do not see the cause in %v", name, err)
		}
		if !strings.Contains(err.Error(), "code 7") {
			t.Errorf("%s: %q does not say the cause", name, err)
		}
	}
	if text := subscribe.Snooze(time.Second).Error(); text != "snooze 1s" {
		t.Errorf("Snooze says %q", text)
	}
	if err := subscribe.Reject(nil); err == nil || err.Error() != "rejected" {
		t.Errorf("Reject(nil): %v, want an error all the same", err)
	}
	if err := subscribe.RetryAfter(time.Second, nil); err == nil || err.Error() != "retry after" {
		t.Errorf("RetryAfter(1s, nil): %v, want an error all the same", err)
	}
}

type causeError struct{ code int }

func (e *causeError) Error() string { return fmt.Sprint("code ", e.code) }
