package cap_test

import (
	"context"
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
