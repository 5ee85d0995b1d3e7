package cap_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/operator"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// TestAMessageCannotAskForEverything: what it must not have, it gets before any
// work is done.
func TestAMessageCannotAskForEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, told := 0, 0
		opts := cap.Options{
			AllowedReplyTopics: []string{"quote.*", "exact"}, TopicNamePrefix: "shop",
			FailedThresholdCallback: func(context.Context, cap.FailedInfo) { told++ },
		}
		sub := subscribe.Reply("ask", func(context.Context, string) (int, error) { runs++; return runs, nil })
		r := running(t, opts, sub)
		for i, to := range []string{"account.credit", "quote.a.b", "quote.#", "exact.no", "shop.exact", "quote." + strings.Repeat("x", 250), "quote.\x00"} {
			r.ask(t, "shop.ask", fmt.Sprint("bad", i), map[string]string{transport.HeaderReplyTo: to})
		}
		elapse(time.Hour)
		if runs != 0 || told != 7 || len(r.store.Records(storage.Outbox)) != 0 {
			t.Errorf("%d runs, %d callbacks, outbox %v", runs, told, r.store.Records(storage.Outbox))
		}
		// Odd numbers and ids are no reason not to answer.
		for i, seq := range []string{"-3", "many", fmt.Sprint(math.MaxInt64), "99999999999999999999", "7"} {
			r.ask(t, "shop.ask", fmt.Sprint("odd\x00", i), map[string]string{transport.HeaderReplyTo: "exact", transport.HeaderCorrelation: seq, "traceparent": "00-a\x00", "tracestate": "s"})
		}
		elapse(time.Hour)
		var got []string
		for _, m := range r.answers("shop.exact") {
			got = append(got, m.Headers[transport.HeaderCorrelation]+m.Headers["traceparent"]+m.Headers["tracestate"])
		}
		if slices.Sort(got); fmt.Sprint(got) != "[1s 1s 1s 1s 8s]" {
			t.Errorf("answers %v", got)
		}
	})
}

// TestARefusedMessageIsAnsweredAfterTheMend: the operator requeues it.
func TestARefusedMessageIsAnsweredAfterTheMend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sub := subscribe.Reply("ask", func(context.Context, string) (int, error) { return 1, nil })
		r := newRig(t, cap.Options{AllowedReplyTopics: []string{"other"}}, sub)
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.ask(t, "ask", "1", map[string]string{transport.HeaderReplyTo: "answer"})
		elapse(time.Minute)
		rec := r.row(t, storage.Inbox)
		if rec.Status != storage.Failed || rec.Retries != 1 || !strings.Contains(rec.LastError, `"answer", which Options.AllowedReplyTopics does not allow`) {
			t.Errorf("row %v with %d attempts: %s", rec.Status, rec.Retries, rec.LastError)
		}
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		r = r.again(t, cap.Options{AllowedReplyTopics: []string{"answer"}}, sub).start(t)
		op, err := r.Operator()
		if err != nil {
			t.Fatal(err)
		}
		// What succeeded is answered anew when it is requeued, too: it is handled anew.
		for n := 1; n <= 2; n++ {
			if _, err := op.Requeue(t.Context(), operator.Received, rec.ID.String()); err != nil {
				t.Fatal(err)
			}
			elapse(time.Minute)
			if got := r.answers("answer"); len(got) != n {
				t.Errorf("after %d requeues: answers %v", n, got)
			}
		}
	})
}
