package storagetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/capbus/gocap/storage"
)

func contentCases() []testCase {
	return []testCase{
		{"content/fields", "A Record is a row of either table; the fields of the second group are set by the storage when it reads.", contentFields},
		{"content/bytes", "Headers and Body are bytes as the codec made them, written once, never again.", contentBytes},
		{"content/names", "Names are at most 255 bytes, of any UTF-8.", contentNames},
		{"content/large-batch", "Append inserts the records with one statement.", contentLargeBatch},
	}
}

// checkContent compares what was written with what is read.
func (e *env) checkContent(got, want *storage.Record) {
	e.Helper()
	if got.ID != want.ID || got.Version != want.Version || got.Topic != want.Topic ||
		got.Group != want.Group || got.Subscriber != want.Subscriber || got.MessageID != want.MessageID {
		e.Errorf("read %+q\nwrote %+q", describe(got), describe(want))
	}
	if !bytes.Equal(got.Headers, want.Headers) || !bytes.Equal(got.Body, want.Body) {
		e.Errorf("headers or body of %v were changed: %d and %d bytes, want %d and %d", want.ID,
			len(got.Headers), len(got.Body), len(want.Headers), len(want.Body))
	}
}

func describe(r *storage.Record) string {
	return fmt.Sprint(r.ID, r.Version, r.Topic, r.Group, r.Subscriber, r.MessageID)
}

func contentFields(e *env) {
	begun := time.Now()
	out, in := e.join(storage.Outbox), e.join(storage.Inbox)
	sent := e.published(out)
	received := e.accepted(in)
	for _, c := range []struct {
		m   storage.Member
		rec *storage.Record
		q   storage.Query
	}{{out, sent, allOf("", "")}, {in, received, allOf("g", "s")}} {
		got := e.due(c.m, c.q)
		e.wantRows("due", got, c.rec)
		got = append(got, e.due(c.m, byID(c.rec))...)
		for _, r := range got {
			e.checkContent(r, c.rec)
			if r.Status != storage.Scheduled || r.Final || r.Retries != 0 || r.Takeovers != 0 || r.LastError != "" {
				e.Errorf("a fresh row reads as %+v", *r)
			}
			if r.Owner != c.m.Number() || r.Position.Seq <= 0 || r.Position.DueAt.IsZero() {
				e.Errorf("a fresh row has owner %d, position %+v", r.Owner, r.Position)
			}
			if r.Age < 0 || r.Age > time.Since(begun)+time.Second {
				e.Errorf("a fresh row is of age %v", r.Age)
			}
		}
	}
}

func contentBytes(e *env) {
	out, in := e.join(storage.Outbox), e.join(storage.Inbox)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	big := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(big)
	for _, body := range [][]byte{nil, {}, {0}, every, big} {
		sent := e.message(out)
		sent.Headers, sent.Body = body[:min(len(body), 1000)], body
		e.publish(sent)
		e.checkContent(e.mustRow(out, sent), sent)
		received := e.delivery("g", "s")
		received.Headers, received.Body = sent.Headers, body
		e.accept(in, received)
		e.checkContent(e.mustRow(in, received), received)
	}
}

func contentNames(e *env) {
	out, in := e.join(storage.Outbox), e.join(storage.Inbox)
	for _, name := range []string{
		"a", strings.Repeat("x", 255), "заказ.создан", strings.Repeat("é", 127) + "x", "注文.作成.🎉",
		`quote'"` + "`" + `\ %_?$1 --`, " leading and trailing ", "UPPER.lower",
	} {
		sent := e.message(out)
		sent.Topic = name
		e.publish(sent)
		e.checkContent(e.mustRow(out, sent), sent)
		received := e.delivery(name, name)
		received.Topic, received.MessageID = name, name
		e.accept(in, received)
		e.checkContent(e.mustRow(in, received), received)
		e.wantRows("lane "+name, e.due(in, allOf(name, name)), received)
	}
}

func contentLargeBatch(e *env) {
	m, in := e.join(storage.Outbox), e.join(storage.Inbox)
	recs := e.messages(64, m)
	received := e.deliveries(64, "g", "s")
	for i := range recs {
		recs[i].Body = bytes.Repeat([]byte{byte(i)}, 32<<10)
		received[i].Body = recs[i].Body
	}
	e.publish(recs...)
	e.wantSet("accepted", e.accept(in, received...), received...)
	got := e.due(m, allOf("", ""))
	e.mustRows("published", got, recs...)
	for i, r := range got {
		e.checkContent(r, recs[i])
	}
	for _, rec := range received {
		e.checkContent(e.mustRow(in, rec), rec)
	}
}
