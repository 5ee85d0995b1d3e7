package redistracker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/capbus/gocap/idempotency"
	"github.com/capbus/gocap/idempotency/redistracker"
	"github.com/capbus/gocap/idempotency/trackertest"
	"github.com/capbus/gocap/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config has names of the test's own, which end with it.
func config(tb testing.TB, client redis.UniversalClient) redistracker.Config {
	tb.Helper()
	prefix := "gocap-test:" + rand.Text() + ":"
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		keys, err := client.Keys(ctx, prefix+"*").Result()
		if err == nil && len(keys) > 0 {
			err = client.Del(ctx, keys...).Err()
		}
		if err != nil {
			tb.Error(err)
		}
	})
	return redistracker.Config{Prefix: prefix}
}

func connect(tb testing.TB, address string) *redis.Client {
	tb.Helper()
	opts, err := redis.ParseURL(address)
	if err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(opts)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}

func TestConformance(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	cfg := config(t, client)
	trackertest.Run(t, func(testing.TB) idempotency.Tracker { return redistracker.New(client, cfg) })
}

func nothing(context.Context) error { return nil }

func TestAKeyIsNewAgainAfterRetention(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	cfg := config(t, client)
	cfg.Retention = 50 * time.Millisecond
	tracker := redistracker.New(client, cfg)
	for name, mark := range map[string]func(key string) error{
		"marked": func(key string) error { return tracker.MarkAsProcessed(t.Context(), key) },
		"once":   func(key string) error { return tracker.Once(t.Context(), key, nothing) },
	} {
		if err := mark(name); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a key of "+name+" is forgotten", func() bool {
			done, err := tracker.HasProcessed(t.Context(), name)
			return !done && err == nil
		})
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// What a process that died has claimed is in progress until its claim ends.
func TestADeadProcessHoldsItsKeyForItsClaim(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	cfg := config(t, client)
	cfg.Claim = time.Second
	dead, living := redistracker.New(deaf{client}, cfg), redistracker.New(client, cfg)
	start := time.Now()
	if err := dead.Once(t.Context(), "a", nothing); err == nil {
		t.Fatal("the end was not recorded, and Once returned nil")
	} else if !strings.Contains(err.Error(), "done, but not recorded") {
		t.Fatalf("error %v does not say that fn has succeeded", err)
	}
	var err error
	eventually(t, "the claim ends", func() bool {
		err = living.Once(t.Context(), "a", nothing)
		return !errors.Is(err, idempotency.ErrInProgress)
	})
	if err != nil || time.Since(start) < cfg.Claim {
		t.Errorf("the key was free after %v, error %v; want its claim of %v", time.Since(start), err, cfg.Claim)
	}
}

// deaf cannot end a claim.
type deaf struct{ redis.UniversalClient }

var errGone = errors.New("gone")

func (deaf) Eval(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	c := redis.NewCmd(ctx)
	c.SetErr(errGone)
	return c
}

func TestTheContextOfFnEndsBeforeItsClaim(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	cfg := config(t, client)
	cfg.Claim = 300 * time.Millisecond
	tracker := redistracker.New(client, cfg)
	err := tracker.Once(t.Context(), "a", func(ctx context.Context) error {
		<-ctx.Done()
		if second := tracker.Once(context.WithoutCancel(ctx), "a", nothing); !errors.Is(second, idempotency.ErrInProgress) {
			t.Errorf("while fn ends, another Once returns %v", second)
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Config.Claim") {
		t.Errorf("error %v", err)
	}
	if err := tracker.Once(t.Context(), "a", nothing); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A claim that was lost meanwhile is no success: another may have the key.
func TestALostClaimIsAnError(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	cfg := config(t, client)
	tracker := redistracker.New(client, cfg)
	err := tracker.Once(t.Context(), "a", func(ctx context.Context) error {
		keys, err := client.Keys(ctx, cfg.Prefix+"*").Result()
		if err != nil || len(keys) != 1 {
			return errors.Join(err, errors.New("not one key"))
		}
		return client.Set(ctx, keys[0], "claim:of another", time.Minute).Err()
	})
	if err == nil || !strings.Contains(err.Error(), "claim of the key was lost") {
		t.Errorf("error %v", err)
	}
	if err := tracker.Once(t.Context(), "a", nothing); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("the other's claim is gone: %v", err)
	}
}

// The client repeats a command when the connection breaks before the answer.
func TestARepeatedCommandIsNoOthersClaim(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	tracker := redistracker.New(repeating{client}, config(t, client))
	runs := 0
	for range 2 {
		if err := tracker.Once(t.Context(), "a", func(context.Context) error { runs++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// repeating sends everything twice, and returns the second answer.
type repeating struct{ redis.UniversalClient }

func (r repeating) SetNX(ctx context.Context, key string, value any, d time.Duration) *redis.BoolCmd {
	r.UniversalClient.SetNX(ctx, key, value, d)
	return r.UniversalClient.SetNX(ctx, key, value, d)
}

func (r repeating) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	r.UniversalClient.Eval(ctx, script, keys, args...)
	return r.UniversalClient.Eval(ctx, script, keys, args...)
}

func TestWhileRedisIsAwayNothingRuns(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	client := connect(t, server.DSN)
	tracker := redistracker.New(client, redistracker.Config{})
	if err := tracker.Once(t.Context(), "a", nothing); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	_, has := tracker.HasProcessed(t.Context(), "a")
	once := tracker.Once(t.Context(), "b", func(context.Context) error { t.Error("fn ran"); return nil })
	for _, err := range []error{has, once, tracker.MarkAsProcessed(t.Context(), "c")} {
		if err == nil || errors.Is(err, idempotency.ErrInProgress) {
			t.Errorf("without a server: error %v", err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := tracker.HasProcessed(t.Context(), "a"); !done || err != nil {
		t.Errorf("after the restart: done %v, %v", done, err)
	}
	if err := tracker.Once(t.Context(), "b", nothing); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestBadSettingsAreReported(t *testing.T) {
	t.Parallel()
	client := connect(t, testenv.Redis())
	for want, tracker := range map[string]*redistracker.Tracker{
		"the client is nil":       redistracker.New(nil, redistracker.Config{}),
		"Config.Claim is -1s":     redistracker.New(client, redistracker.Config{Claim: -time.Second}),
		"Config.Claim is 9ms":     redistracker.New(client, redistracker.Config{Claim: 9 * time.Millisecond}),
		"Config.Retention is 1µs": redistracker.New(client, redistracker.Config{Retention: time.Microsecond}),
	} {
		_, has := tracker.HasProcessed(t.Context(), "a")
		once := tracker.Once(t.Context(), "a", func(context.Context) error { t.Error("fn ran"); return nil })
		for _, err := range []error{tracker.Validate(), has, once, tracker.MarkAsProcessed(t.Context(), "a")} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v does not say %q", err, want)
			}
		}
	}
}
