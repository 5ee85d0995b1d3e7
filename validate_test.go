package gocap_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/subscribe"
)

// problems returns the fields that Validate names, in its order. An error that
// is no *FieldError fails the test.
func problems(t *testing.T, err error) (fields []string, all []*gocap.FieldError) {
	t.Helper()
	if err == nil {
		return nil, nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) // a joined one, and nothing around it
	if !ok {
		t.Fatalf("Validate returned %T, want joined errors", err)
	}
	for _, e := range joined.Unwrap() {
		var fe *gocap.FieldError
		if !errors.As(e, &fe) {
			t.Fatalf("Validate returned %T (%v), want a *FieldError", e, e)
		}
		fields, all = append(fields, fe.Field), append(all, fe)
	}
	return fields, all
}

func valid() gocap.Options {
	return gocap.Options{Storage: &someStorage{}, Transport: &someTransport{}}
}

func TestValidateAcceptsTheDefaults(t *testing.T) {
	t.Parallel()
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
	if err := (gocap.Options{Storage: &someStorage{}}).Validate(); err != nil {
		t.Errorf("without a Transport, for a bus that only publishes: %v", err)
	}
	o := valid()
	o.ImmediateRetries, o.SucceedMessageExpiredAfter, o.FailedRetryCount = -1, -1, 1
	if err := o.Validate(); err != nil {
		t.Errorf("negative values that mean off: %v", err)
	}
}

func TestUseStorageLockNeedsAStorageThatCan(t *testing.T) {
	t.Parallel()
	o := valid()
	o.UseStorageLock = true
	if fields, all := problems(t, o.Validate()); len(fields) != 1 || fields[0] != "UseStorageLock" || !strings.Contains(all[0].Problem, "has no locks") {
		t.Errorf("without locks: %v", all)
	}
	o.Storage = &locking{}
	if err := o.Validate(); err != nil {
		t.Errorf("with locks: %v", err)
	}
}

type locking struct{ someStorage }

func (*locking) CanLock() {}

type refusing struct{ someStorage }

func (refusing) Validate() error { return errors.New("Prefix: is too long") }

func badOptions() []struct {
	field, says string
	set         func(*gocap.Options)
} {
	return []struct {
		field, says string
		set         func(*gocap.Options)
	}{
		{"Storage", "required", func(o *gocap.Options) { o.Storage = nil }},
		{"Storage", "required", func(o *gocap.Options) { o.Storage = (*someStorage)(nil) }},
		{"Storage", "Prefix: is too long", func(o *gocap.Options) { o.Storage = &refusing{} }},
		{"Transport", "nil *gocap_test.someTransport", func(o *gocap.Options) { o.Transport = (*someTransport)(nil) }},
		{"Subscriptions[1]", "subscribe.To", func(o *gocap.Options) {
			o.Subscriptions = []subscribe.Subscription{subscribe.To("a", func(context.Context, string) error { return nil }), {}}
		}},
		{"Middleware[1]", "nil", func(o *gocap.Options) {
			o.Middleware = []subscribe.Middleware{func(next subscribe.Handler) subscribe.Handler { return next }, nil}
		}},
		{"Version", `"a b"`, func(o *gocap.Options) { o.Version = "a b" }},
		{"Version", "20 bytes", func(o *gocap.Options) { o.Version = strings.Repeat("x", 21) }},
		{"AlsoVersions", `"a b"`, func(o *gocap.Options) { o.AlsoVersions = []string{"v0", "a b"} }},
		{"AlsoVersions", "own version", func(o *gocap.Options) { o.AlsoVersions = []string{"v0", "v1"} }},
		{"AlsoVersions", "twice", func(o *gocap.Options) { o.AlsoVersions = []string{"v0", "v0"} }},
		{"DefaultGroupName", "256 bytes", func(o *gocap.Options) { o.DefaultGroupName = strings.Repeat("g", 256) }},
		{"GroupNamePrefix", "UTF-8", func(o *gocap.Options) { o.GroupNamePrefix = "\xff" }},
		{"TopicNamePrefix", "wildcard", func(o *gocap.Options) { o.TopicNamePrefix = "shop.#" }},
		{"FailedRetryCount", "-1", func(o *gocap.Options) { o.FailedRetryCount = -1 }},
		{"FailedRetryInterval", "-1s", func(o *gocap.Options) { o.FailedRetryInterval = -time.Second }},
		{"FailedMessageExpiredAfter", "-1s", func(o *gocap.Options) { o.FailedMessageExpiredAfter = -time.Second }},
		{"CollectorCleaningInterval", "-1s", func(o *gocap.Options) { o.CollectorCleaningInterval = -time.Second }},
		{"CollectorBatchSize", "-5", func(o *gocap.Options) { o.CollectorBatchSize = -5 }},
		{"FallbackWindow", "-1s", func(o *gocap.Options) { o.FallbackWindow = -time.Second }},
		{"UnhandledAfter", "-1s", func(o *gocap.Options) { o.UnhandledAfter = -time.Second }},
		{"PollInterval", "-1s", func(o *gocap.Options) { o.PollInterval = -time.Second }},
		{"PollInterval", "FallbackWindow (15s)", func(o *gocap.Options) { o.PollInterval = 15 * time.Second }},
		{"ConsumerCount", "-2", func(o *gocap.Options) { o.ConsumerCount = -2 }},
		{"Concurrency", "-3", func(o *gocap.Options) { o.Concurrency = -3 }},
		{"SendWindow", "-4", func(o *gocap.Options) { o.SendWindow = -4 }},
		{"BatchSize", "-5", func(o *gocap.Options) { o.BatchSize = -5 }},
		{"HandlerTimeout", "-1s", func(o *gocap.Options) { o.HandlerTimeout = -time.Second }},
		{"StopTimeout", "-1s", func(o *gocap.Options) { o.StopTimeout = -time.Second }},
		{"AllowedReplyTopics", "topic is empty", func(o *gocap.Options) { o.AllowedReplyTopics = []string{"a.*", ""} }},
		{"MaxBodySize", "-6", func(o *gocap.Options) { o.MaxBodySize = -6 }},
		{"MaxHeaders", "-7", func(o *gocap.Options) { o.MaxHeaders = -7 }},
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	for _, c := range badOptions() {
		t.Run(c.field+" "+c.says, func(t *testing.T) {
			t.Parallel()
			o := valid()
			c.set(&o)
			fields, all := problems(t, o.Validate())
			if len(fields) != 1 || fields[0] != c.field || !strings.Contains(all[0].Problem, c.says) {
				t.Fatalf("Validate: %v, want one problem of %s that says %q", o.Validate(), c.field, c.says)
			}
			if want := "Options." + c.field + ": "; !strings.HasPrefix(all[0].Error(), want) {
				t.Errorf("the error is %q, want it to begin with %q", all[0].Error(), want)
			}
		})
	}
}

func TestValidateReportsEveryBadValueAtOnceInOrder(t *testing.T) {
	t.Parallel()
	o := valid()
	var want []string
	for _, c := range badOptions() {
		if !slices.Contains(want, c.field) {
			c.set(&o)
			want = append(want, c.field)
		}
	}
	first := o.Validate()
	if fields, _ := problems(t, first); !slices.Equal(fields, want) {
		t.Errorf("Validate names\n%q, want\n%q", fields, want)
	}
	for range 20 {
		if again := o.Validate(); again.Error() != first.Error() {
			t.Fatalf("Validate says\n%v\nand another time\n%v", first, again)
		}
	}
}
