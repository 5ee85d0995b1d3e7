package subscribe_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

type order struct {
	ID    int      `json:"id"`
	Lines []string `json:"lines"`
}

func TestTheBodyIsDecodedIntoTheHandlersType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var value order
		var pointer *order
		var text string
		var anything any
		var raw *transport.Message
		r := running(t, nil,
			subscribe.To("order", func(_ context.Context, o order) error { value = o; return nil }),
			subscribe.To("order", func(_ context.Context, o *order) error { pointer = o; return nil }, subscribe.Name("pointer")),
			subscribe.To("order", func(_ context.Context, v any) error { anything = v; return nil }, subscribe.Name("any")),
			subscribe.To("order", func(_ context.Context, m *transport.Message) error { raw = m; return nil }, subscribe.Name("raw")),
			subscribe.To("text", func(_ context.Context, s string) error { text = s; return nil }))
		body := `{"id":7,"lines":["a","b"]}`
		r.send("order", "1", body)
		r.send("text", "2", `"hello"`)
		elapse(time.Second)
		if value.ID != 7 || len(value.Lines) != 2 || pointer == nil || pointer.ID != 7 || text != "hello" {
			t.Errorf("handlers got %+v, %+v, %q", value, pointer, text)
		}
		if m, ok := anything.(map[string]any); !ok || m["id"] != json.Number("7") {
			t.Errorf("the handler of any got %v", anything)
		}
		if raw == nil || string(raw.Body) != body || raw.ID != "1" || raw.Topic != "order" || raw.Headers[transport.HeaderID] != "1" {
			t.Errorf("the handler of *transport.Message got %+v", raw)
		}
	})
}

// What a handler does to its message is gone with the attempt.
func TestEveryAttemptGetsTheMessageAsItCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bodies, headers []string
		r := running(t, nil, subscribe.To("t", func(_ context.Context, m *transport.Message) error {
			bodies, headers = append(bodies, string(m.Body)), append(headers, m.Headers[transport.HeaderTopic])
			m.Body[1], m.Headers[transport.HeaderTopic] = 'x', "x"
			if len(bodies) < 5 { // in the same hands, and read again from the table
				return errors.New("no")
			}
			return nil
		}))
		r.send("t", "1", `"m"`)
		elapse(10 * time.Minute)
		if want := slices.Repeat([]string{`"m"`}, 5); !slices.Equal(bodies, want) || !slices.Equal(headers, slices.Repeat([]string{"t"}, 5)) {
			t.Errorf("bodies %v, topics %v, want them as they came", bodies, headers)
		}
	})
}

func TestAnEmptyBodyIsNull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := running(t, nil,
			subscribe.To("t", func(_ context.Context, o *order) error {
				if runs++; o != nil {
					t.Errorf("got %+v, want nil", o)
				}
				return nil
			}),
			subscribe.To("t", func(_ context.Context, o order) error {
				if runs++; o.ID != 0 {
					t.Errorf("got %+v, want the zero value", o)
				}
				return nil
			}, subscribe.Name("value")))
		r.send("t", "1", "")
		elapse(time.Second)
		if runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
	})
}

func TestWhatCannotBeDecodedFailsAtOnceWithItsBody(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"wrong type": `{"id":"seven"}`, "no JSON": "<order/>", "cut": `{"id":`, "binary": "\x00\xff"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				r := running(t, nil, subscribe.To("t", func(context.Context, order) error { runs++; return nil }))
				r.send("t", "1", body)
				elapse(10 * time.Minute)
				rec := r.record()
				if !rec.Final || rec.Status != storage.Failed || rec.Retries != 1 || string(rec.Body) != body {
					t.Errorf("row: final %t, %v, %d attempts, body %q", rec.Final, rec.Status, rec.Retries, rec.Body)
				}
				if !strings.Contains(rec.LastError, "body cannot be decoded as subscribe_test.order") {
					t.Errorf("error %q", rec.LastError)
				}
				if runs != 0 || len(r.callbacks()) != 1 || string(r.callbacks()[0].m.Body) != body {
					t.Errorf("%d runs, %d callbacks", runs, len(r.callbacks()))
				}
			})
		})
	}
}

func TestTheDecodeErrorNamesAnInterfaceType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, nil, subscribe.To("t", func(context.Context, any) error { return nil }))
		r.send("t", "1", "{")
		elapse(time.Second)
		if rec := r.record(); !strings.Contains(rec.LastError, "decoded as interface {}:") {
			t.Errorf("error %q does not name the type", rec.LastError)
		}
	})
}

type hostile struct{}

func (*hostile) UnmarshalJSON([]byte) error { panic("decoder") }

func TestAPanickingDecoderIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := running(t, nil, subscribe.To("t", func(context.Context, hostile) error { return nil }, subscribe.FailedRetryCount(2)))
		r.send("t", "1", "{}")
		elapse(10 * time.Minute)
		if rec := r.record(); !rec.Final || rec.Retries != 2 || !strings.Contains(rec.LastError, "panicked: decoder") {
			t.Errorf("row: final %t, %d attempts, %q", rec.Final, rec.Retries, rec.LastError)
		}
	})
}

// tracing is middleware that writes down its way in and out.
func tracing(trace *[]string, name string) subscribe.Middleware {
	return func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error {
			*trace = append(*trace, name+" in")
			err := next.Handle(ctx, m)
			*trace = append(*trace, name+" out")
			return err
		})
	}
}

func TestMiddlewareRunsInTheOrderGiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var trace []string
		r := running(t, nil, subscribe.To("t", func(context.Context, string) error {
			trace = append(trace, "handler")
			return nil
		}, subscribe.With(tracing(&trace, "a"), tracing(&trace, "b")), subscribe.With(tracing(&trace, "c"))))
		r.send("t", "1", `"m"`)
		elapse(time.Second)
		if want := []string{"a in", "b in", "c in", "handler", "c out", "b out", "a out"}; !slices.Equal(trace, want) {
			t.Errorf("order %v, want %v", trace, want)
		}
	})
}

// answering is middleware made of a function.
func answering(f func(ctx context.Context, m *transport.Message, next subscribe.Handler) error) subscribe.Option {
	return subscribe.With(func(next subscribe.Handler) subscribe.Handler {
		return subscribe.HandlerFunc(func(ctx context.Context, m *transport.Message) error { return f(ctx, m, next) })
	})
}

func TestMiddlewareMayReplaceAnswerAndHandle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		handler := func(_ context.Context, s string) error {
			got = append(got, s)
			return errors.New("no")
		}
		r := running(t, func(c *subscribe.ConsumerConfig) { c.Policy.Count = 1 },
			subscribe.To("replace", handler, answering(func(ctx context.Context, m *transport.Message, next subscribe.Handler) error {
				m = m.Clone()
				m.Body = []byte(`"another"`)
				return next.Handle(ctx, m)
			})),
			subscribe.To("answer", handler, answering(func(context.Context, *transport.Message, subscribe.Handler) error { return nil })),
			subscribe.To("swallow", handler, answering(func(ctx context.Context, m *transport.Message, next subscribe.Handler) error {
				_ = next.Handle(ctx, m)
				return nil
			})),
			subscribe.To("panic", handler, answering(func(context.Context, *transport.Message, subscribe.Handler) error { panic("middleware") })),
			subscribe.To("decode", handler, answering(func(ctx context.Context, m *transport.Message, next subscribe.Handler) error {
				if err := next.Handle(ctx, m); err != nil { // it sees what could not be decoded
					return errors.New("seen: " + err.Error())
				}
				return nil
			})))
		for _, topic := range []string{"replace", "answer", "swallow", "panic"} {
			r.send(topic, topic, `"`+topic+`"`)
		}
		r.send("decode", "decode", "5")
		elapse(time.Second)
		slices.Sort(got)
		if !slices.Equal(got, []string{"another", "swallow"}) {
			t.Errorf("the handlers got %v, want another and swallow", got)
		}
		for _, rec := range r.records() {
			ok := rec.Topic == "answer" || rec.Topic == "swallow"
			if ok != (rec.Status == storage.Succeeded) || !rec.Final {
				t.Errorf("row of %s is %v (%s)", rec.Topic, rec.Status, rec.LastError)
			}
			if rec.Topic == "replace" && string(rec.Body) != `"replace"` {
				t.Errorf("middleware changed the stored body to %s", rec.Body)
			}
			if rec.Topic == "panic" && !strings.Contains(rec.LastError, "panicked: middleware") {
				t.Errorf("error of the panic: %q", rec.LastError)
			}
			if rec.Topic == "decode" && !strings.HasPrefix(rec.LastError, "seen: body cannot be decoded") {
				t.Errorf("error after the middleware: %q", rec.LastError)
			}
		}
	})
}

func TestMiddlewareHasTheInfoOfTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var info subscribe.Info
		r := running(t, nil, subscribe.To("t", nothing, answering(func(ctx context.Context, m *transport.Message, next subscribe.Handler) error {
			info, _ = subscribe.InfoFromContext(ctx)
			return next.Handle(ctx, m)
		})))
		r.send("t", "1", `"m"`)
		elapse(time.Second)
		if info.Group != "test" || info.Subscriber != "t" || info.Attempt != 1 || info.Message == nil || info.Message.ID != "1" {
			t.Errorf("Info: %+v", info)
		}
	})
}
