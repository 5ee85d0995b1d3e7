package cap_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/subscribe"
)

func TestMiddlewareOfTheBusIsAroundEveryHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		note := func(name string) subscribe.Middleware {
			return func(next subscribe.Handler) subscribe.Handler {
				return subscribe.HandlerFunc(func(ctx context.Context, m *cap.Message) error {
					info, _ := cap.InfoFromContext(ctx)
					j.add(name + " " + info.Subscriber)
					return next.Handle(ctx, m)
				})
			}
		}
		r := running(t, cap.Options{Middleware: []subscribe.Middleware{note("1"), note("2")}, Concurrency: 1},
			subscribe.To("t", j.handler, subscribe.With(note("3"))))
		if err := r.Publish(t.Context(), cap.NoTx, "t", "handled"); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if want := []string{"1 t", "2 t", "3 t", "handled"}; !slices.Equal(j.all(), want) {
			t.Errorf("order %v, want %v", j.all(), want)
		}
	})
}

// An error that middleware has handled is a success: what the handler did in the
// inbox transaction is committed with it.
func TestAHandledErrorCommitsWhatTheHandlerDid(t *testing.T) {
	t.Parallel()
	errSkip := errors.New("skip")
	for name, c := range map[string]struct {
		err  error
		want []string
	}{"handled": {errSkip, []string{"nested"}}, "not handled": {errors.New("no"), nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				skipping := subscribe.OnError(func(_ context.Context, err error) error {
					if errors.Is(err, errSkip) {
						return nil
					}
					return err
				})
				r := running(t, cap.Options{Middleware: []subscribe.Middleware{skipping}, FailedRetryCount: 2},
					subscribe.To("t", func(ctx context.Context, _ string) error {
						if err := cap.Publish(ctx, nil, "nested", "nested"); err != nil {
							t.Error(err)
						}
						return c.err
					}), subscribe.To("nested", j.handler))
				if err := r.Publish(t.Context(), cap.NoTx, "t", "m"); err != nil {
					t.Fatal(err)
				}
				elapse(time.Hour)
				if got := j.all(); !slices.Equal(got, c.want) {
					t.Errorf("published %v, want %v", got, c.want)
				}
			})
		})
	}
}
