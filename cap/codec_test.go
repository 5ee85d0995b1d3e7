package cap_test

import (
	"bytes"
	"context"
	"encoding/json"
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

func TestACodecForAMessageAndItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		blob := []byte("\x00\xff{")
		j := newJournal()
		var got []byte
		r := running(t, cap.Options{},
			subscribe.To("blob", func(_ context.Context, b []byte) error { got = b; return nil }, subscribe.Codec(transport.Bytes)),
			subscribe.To("text", j.handler))
		if err := r.PublishMany(t.Context(), cap.NoTx,
			cap.Outgoing{Topic: "blob", Msg: blob, Opts: []cap.PublishOption{cap.WithCodec(transport.Bytes)}},
			cap.Outgoing{Topic: "text", Msg: "as ever"}); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if !bytes.Equal(got, blob) || !slices.Equal(j.all(), []string{"as ever"}) {
			t.Errorf("handled %q and %q", got, j.all())
		}
		if want := []string{`"as ever"`, string(blob)}; !slices.Equal(r.sent(), slices.Sorted(slices.Values(want))) {
			t.Errorf("bodies %q, want %q", r.sent(), want)
		}
		for name, err := range map[string]error{
			"WithCodec: the codec is nil":           r.Publish(t.Context(), cap.NoTx, "t", "m", cap.WithCodec(nil)),
			"[]byte or a string, not a map[string]": r.Publish(t.Context(), cap.NoTx, "t", map[string]int{}, cap.WithCodec(transport.Bytes)),
		} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want an error that says %q", err, name)
			}
		}
	})
}

func TestARawMessageIsTheBodyByteForByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body = `{ "sum": 1.50, "note": "<&>" }`
		var got []string
		r := running(t, cap.Options{},
			subscribe.To("t", func(_ context.Context, m *cap.Message) error { got = append(got, string(m.Body)); return nil }))
		if err := r.Publish(t.Context(), cap.NoTx, "t", json.RawMessage(body)); err != nil {
			t.Fatal(err)
		}
		elapse(time.Second)
		if !slices.Equal(got, []string{body}) {
			t.Errorf("handled %q, want %q", got, body)
		}
	})
}

// A body that does not decode fails for good, stays as it came, and is handled
// when it is requeued after the handler was mended.
func TestABodyThatDoesNotDecodeCanBeRequeuedAfterTheFix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body = `{"id": "seven", "new": true}`
		var told []cap.FailedInfo
		old := newRig(t, cap.Options{FailedThresholdCallback: func(_ context.Context, info cap.FailedInfo) { told = append(told, info) }},
			subscribe.To("t", func(context.Context, ProductDeleted) error { t.Error("it was handled"); return nil }))
		if err := old.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := old.Publish(t.Context(), cap.NoTx, "t", json.RawMessage(body)); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		row := old.row(t, storage.Inbox)
		if !row.Final || row.Status != storage.Failed || row.Retries != 1 || string(row.Body) != body {
			t.Errorf("row: final %t, %v, %d attempts, body %s", row.Final, row.Status, row.Retries, row.Body)
		}
		if len(told) != 1 || string(told[0].Message.Body) != body || strings.Contains(told[0].LastError, "seven") {
			t.Errorf("told %+v, want it once, with its body, which the error does not quote", told)
		}
		if err := old.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		j := newJournal()
		mended := old.again(t, cap.Options{}, subscribe.To("t", func(ctx context.Context, v struct{ ID json.RawMessage }) error {
			return j.handler(ctx, string(v.ID))
		})).start(t)
		o := mended.operates(t)
		done(t, 1)(o.Requeue(t.Context(), operator.Received, only(t, o, operator.Received, operator.Failed).ID))
		elapse(time.Second)
		if got := j.all(); !slices.Equal(got, []string{`"seven"`}) {
			t.Errorf("handled %q", got)
		}
		only(t, o, operator.Received, operator.Succeeded)
	})
}
