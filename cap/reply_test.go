package cap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/memstore"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

type quote struct{ Cents int }

// answers returns what was sent to a topic, "" for all topics; each message once,
// though one that nobody takes is sent again.
func (r *rig) answers(topic string) (msgs []*transport.Message) {
	seen := map[string]bool{}
	for _, m := range r.queue.Sent() {
		if (topic == "" || m.Topic == topic) && !seen[m.ID] {
			msgs, seen[m.ID] = append(msgs, m), true
		}
	}
	return msgs
}

// ask sends a message as a service elsewhere would, with any headers.
func (r *rig) ask(t *testing.T, topic, id string, headers map[string]string) {
	t.Helper()
	h := map[string]string{transport.HeaderID: id, transport.HeaderTopic: topic}
	maps.Copy(h, headers)
	if err := r.queue.Send(t.Context(), []*transport.Message{{ID: id, Topic: topic, Headers: h, Body: []byte(`"m"`)}})[0]; err != nil {
		t.Fatal(err)
	}
}

func TestAnAnswerSaysWhatItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, cap.Options{}, subscribe.Reply("quote.wanted", func(context.Context, string) (*quote, error) { return &quote{7}, nil }))
		id := cap.NewID()
		if err := r.Publish(t.Context(), cap.NoTx, "quote.wanted", "lamp", cap.WithID(id), cap.WithReplyTo("quote.given"), cap.WithKey("k")); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		got := r.answers("quote.given")
		if len(got) != 1 || string(got[0].Body) != `{"Cents":7}` {
			t.Fatalf("answers %v", got)
		}
		h := got[0].Headers
		if h[transport.HeaderCorrelationID] != id || h[transport.HeaderCorrelation] != "1" || h[transport.HeaderType] != "quote" || h[transport.HeaderID] == id {
			t.Errorf("headers %v", h)
		}
		for _, name := range []string{transport.HeaderReplyTo, transport.HeaderKey} {
			if v, ok := h[name]; ok {
				t.Errorf("the answer has %s %q of its message", name, v)
			}
		}
	})
}

// TestOneAnswerForEachSuccess, whatever it is, and none for a failure.
func TestOneAnswerForEachSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := func(err error) func(ctx context.Context, _ string) (any, error) {
			return func(ctx context.Context, _ string) (any, error) {
				if info, _ := cap.InfoFromContext(ctx); info.Attempt == 1 {
					return "wrong", err
				}
				return "right", nil
			}
		}
		swallow := subscribe.With(func(next subscribe.Handler) subscribe.Handler {
			return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
				_ = next.Handle(ctx, m)
				return nil
			})
		})
		snoozed := false
		want := map[string]string{ // body of the answers, by topic
			"nil": `[null]`, "pointer": `[null]`, "empty": `[{}]`, "retried": `["right"]`, "panics": `["right"]`,
			"rejected": `[]`, "snoozed": `["right"]`, "swallowed": `[]`, "handled": `[]`, "again": `["right"]`, "number": `["right"]`,
		}
		numbers := 0
		r := running(t, cap.Options{},
			subscribe.Reply("nil", func(context.Context, string) (any, error) { return nil, nil }),
			subscribe.Reply("pointer", func(context.Context, string) (*quote, error) { return nil, nil }),
			subscribe.Reply("empty", func(context.Context, string) (struct{}, error) { return struct{}{}, nil }),
			subscribe.Reply("retried", fails(errors.New("no"))),
			subscribe.Reply("panics", func(ctx context.Context, _ string) (string, error) {
				if info, _ := cap.InfoFromContext(ctx); info.Attempt == 1 {
					panic("no")
				}
				return "right", nil
			}),
			subscribe.Reply("rejected", fails(subscribe.Reject(errors.New("never")))),
			subscribe.Reply("snoozed", func(context.Context, string) (string, error) {
				if !snoozed {
					snoozed = true
					return "wrong", subscribe.Snooze(time.Second)
				}
				return "right", nil
			}),
			subscribe.Reply("swallowed", fails(errors.New("no")), swallow),
			subscribe.To("handled", func(context.Context, string) error { return nil }),
			// A handler that runs twice within an attempt: the last run counts.
			subscribe.Reply("again", func(context.Context, string) (string, error) { return "right", nil }, subscribe.With(twice)),
			// What cannot be encoded is a failed attempt.
			subscribe.Reply("number", func(context.Context, string) (any, error) {
				if numbers++; numbers == 1 {
					return math.NaN(), nil
				}
				return "right", nil
			}))
		for topic := range want {
			if err := r.Publish(t.Context(), cap.NoTx, topic, "m", cap.WithReplyTo("answer."+topic)); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Hour)
		for topic, bodies := range want {
			var got []string
			for _, m := range r.answers("answer." + topic) {
				got = append(got, string(m.Body))
			}
			if fmt.Sprint(got) != bodies {
				t.Errorf("%s: answers %v, want %s", topic, got, bodies)
			}
		}
	})
}

func twice(next subscribe.Handler) subscribe.Handler {
	return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
		return errors.Join(next.Handle(ctx, m.Clone()), next.Handle(ctx, m))
	})
}

// doubtful is a storage whose first commit of an inbox transaction fails, and
// whose second one is made, but reported as failed.
type doubtful struct {
	*memstore.Store

	commits int
}

type doubtfulTx struct {
	*memstore.Tx

	d *doubtful
}

func (d *doubtful) Begin(ctx context.Context) (storage.Tx, error) {
	tx, err := d.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return doubtfulTx{tx.(*memstore.Tx), d}, nil //nolint:forcetypeassert // memstore's
}

func (t doubtfulTx) Commit() error {
	lost := errors.New("connection lost")
	switch t.d.commits++; t.d.commits {
	case 1:
		return errors.Join(lost, t.Rollback())
	case 2:
		return errors.Join(lost, t.Tx.Commit())
	}
	return t.Tx.Commit()
}

// TestAnswerAndSuccessAreOne, whether the handler has asked for the transaction
// or not.
func TestAnswerAndSuccessAreOne(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			runs, store := 0, &doubtful{Store: memstore.New(memstore.Config{})}
			r := running(t, cap.Options{Storage: store}, subscribe.Reply("ask", func(ctx context.Context, _ string) (int, error) {
				runs++
				if asks {
					if err := cap.Publish(ctx, nil, "effect", runs); err != nil {
						t.Error(err)
					}
				}
				return runs, nil
			}))
			r.ask(t, "ask", "1", map[string]string{transport.HeaderReplyTo: "answer"})
			elapse(time.Hour)
			recs := store.Records(storage.Inbox)
			if got := r.answers("answer"); runs != 2 || len(got) != 1 || string(got[0].Body) != "2" || len(recs) != 1 || recs[0].Status != storage.Succeeded || recs[0].Retries != 1 {
				t.Errorf("asks %t: %d runs, answers %v, rows %v", asks, runs, got, recs)
			}
		})
	}
}

// TestAnAnswerAfterTheTimeoutIsNone: the transaction that it needs is gone, and
// that is a failed attempt, not the database's fault.
func TestAnAnswerAfterTheTimeoutIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, cap.Options{FailedRetryCount: 2}, subscribe.Reply("ask", func(context.Context, string) (int, error) {
			pause(2 * time.Second)
			return 1, nil
		}, subscribe.Timeout(time.Second)))
		r.ask(t, "ask", "1", map[string]string{transport.HeaderReplyTo: "answer"})
		elapse(time.Hour)
		if rec := r.row(t, storage.Inbox); !rec.Final || rec.Retries != 2 || len(r.answers("answer")) != 0 || !strings.Contains(rec.LastError, "took longer than 1s") {
			t.Errorf("row %v with %d failed attempts, %q; answers %v", rec.Status, rec.Retries, rec.LastError, r.answers("answer"))
		}
	})
}

// TestAHandlerSaysWhereItsAnswerGoes, and middleware for it.
func TestAHandlerSaysWhereItsAnswerGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		change := func(f func(*cap.Message, *subscribe.Answer)) subscribe.Middleware {
			return func(next subscribe.Handler) subscribe.Handler {
				return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
					a, ok := subscribe.AnswerFromContext(ctx)
					if !ok {
						t.Error("no Answer in middleware")
					}
					f(m, a)
					return next.Handle(ctx, m)
				})
			}
		}
		in := func(f func(*subscribe.Answer)) func(context.Context, string) (string, error) {
			return func(ctx context.Context, s string) (string, error) {
				if a, ok := subscribe.AnswerFromContext(ctx); ok && f != nil {
					f(a)
				}
				return s, nil
			}
		}
		shared := map[string]string{"x": "1", transport.HeaderCorrelationID: "forged"}
		r := running(t, cap.Options{AllowedReplyTopics: []string{"allowed.#"}, FailedRetryCount: 1},
			subscribe.Reply("rewritten", in(func(a *subscribe.Answer) { a.Topic = "other" })),
			subscribe.Reply("removed", in(func(a *subscribe.Answer) { a.Topic = "" })),
			subscribe.Reply("added", in(func(a *subscribe.Answer) { a.Headers, a.ReplyTo = shared, "next" })),
			subscribe.Reply("wrong", in(func(a *subscribe.Answer) { a.Topic = "a.*" })),
			subscribe.Reply("reserved", in(func(a *subscribe.Answer) { a.Headers = map[string]string{transport.HeaderID: "1"} })),
			subscribe.Reply("by middleware", in(nil), subscribe.With(change(func(m *cap.Message, a *subscribe.Answer) { a.Topic = "mapped." + m.Headers[transport.HeaderReplyTo] }))),
			subscribe.To("no reply", func(ctx context.Context, _ string) error {
				if _, ok := subscribe.AnswerFromContext(ctx); ok {
					t.Error("a handler that does not answer has an Answer")
				}
				return nil
			}))
		for topic, to := range map[string]string{
			"rewritten": "allowed.1", "removed": "allowed.2", "added": "allowed.3", "wrong": "allowed.4", "reserved": "allowed.5",
			"by middleware": "elsewhere", "no reply": "allowed.6",
		} {
			r.ask(t, topic, topic, map[string]string{transport.HeaderReplyTo: to, transport.HeaderCorrelation: "4"})
		}
		elapse(time.Hour)
		var sent []string
		for _, m := range r.answers("") {
			if m.Headers[transport.HeaderCorrelation] == "5" {
				sent = append(sent, fmt.Sprint(m.Topic, " ", m.Headers[transport.HeaderCorrelationID], " ", m.Headers[transport.HeaderReplyTo], m.Headers["x"]))
			}
		}
		slices.Sort(sent)
		if want := []string{"allowed.3 added next1", "mapped.elsewhere by middleware ", "other rewritten "}; !slices.Equal(sent, want) {
			t.Errorf("answers %q, want %q", sent, want)
		}
		if len(shared) != 2 || shared[transport.HeaderCorrelationID] != "forged" {
			t.Errorf("the handler's own map was changed: %v", shared)
		}
		for _, rec := range r.store.Records(storage.Inbox) {
			failed := rec.Topic == "wrong" || rec.Topic == "reserved"
			if failed != (rec.Status == storage.Failed) {
				t.Errorf("%s ended %v: %s", rec.Topic, rec.Status, rec.LastError)
			}
		}
	})
}
