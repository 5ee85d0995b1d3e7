package transporttest

import (
	"bytes"
	"strings"

	"github.com/capbus/gocap/transport"
)

func contentCases() []testCase {
	const why = "Message is what travels: a topic, headers (all of them, id and topic included) and a body as the codec made it."
	return []testCase{
		{name: "headers arrive as they were", why: why, run: checkHeaders},
		{name: "bodies arrive as they were", why: why, run: checkBodies},
		{name: "large bodies", why: why, run: checkLargeBodies},
		{
			name: "odd topics",
			why:  "CheckTopic: a topic must be 1 to 255 bytes of valid UTF-8 without NUL and without wildcard words.",
			run:  checkOddTopics,
		},
		{
			name: "odd groups",
			why:  "MaxTopicBytes is the longest topic and group name.",
			run: func(e *env) {
				var groups []*receiver
				for _, name := range []string{"grün 日本", "a.*", "A.*", "a/b:c", `"';--`} {
					groups = append(groups, e.receive(name, 10, "content.a"))
				}
				res := e.send(e.message("content.a", "0"))
				for _, r := range groups {
					e.sameBodies(r.nextAcked(1), 1)
					e.nothing(r)
				}
				res.stored()
			},
		},
	}
}

// sameMessage checks what must not change on the way. A transport may add
// headers of its own.
func (e *env) sameMessage(got, want *transport.Message) {
	e.Helper()
	if got.ID != want.ID {
		e.Errorf("id is %q, was %q", got.ID, want.ID)
	}
	if got.Topic != want.Topic {
		e.Errorf("topic is %q, was %q", got.Topic, want.Topic)
	}
	if !bytes.Equal(got.Body, want.Body) {
		e.Errorf("body has %d bytes (%.40q), had %d (%.40q)", len(got.Body), got.Body, len(want.Body), want.Body)
	}
	for k, v := range want.Headers {
		if is, ok := got.Headers[k]; !ok || is != v {
			e.Errorf("header %q is %.40q (there: %t), was %.40q", k, is, ok, v)
		}
	}
}

// roundTrip sends a message to the receiver and compares.
func (e *env) roundTrip(r *receiver, m *transport.Message) {
	e.Helper()
	want := m.Clone()
	res := e.send(m)
	d := r.next()
	e.sameMessage(d.msg, want)
	d.ack()
	res.stored()
}

func checkHeaders(e *env) {
	r := e.receive("g", 10, "content.a")
	m := e.message("content.a", "0")
	for k, v := range map[string]string{
		transport.HeaderCorrelationID: m.ID,
		transport.HeaderCorrelation:   "0",
		transport.HeaderReplyTo:       "",
		transport.HeaderKey:           "order 7/ü",
		"traceparent":                 "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"tracestate":                  "a=1,b=2",
		"empty":                       "",
		"space":                       " ",
		"Mixed-Case":                  "Value",
		"mixed-case":                  "other value",
		"unicode":                     "grün 日本 🚀",
		"lines":                       "a\nb\r\n\tc",
		"quotes":                      `"'\{}`,
		"number":                      "007",
		"long":                        strings.Repeat("x", 4000),
	} {
		m.Headers[k] = v
	}
	e.roundTrip(r, m)
	e.roundTrip(r, e.message("content.a", "few headers after many"))
}

func checkBodies(e *env) {
	r := e.receive("g", 10, "content.a")
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, body := range []string{
		"", "null", `""`, "0", `{"id":9007199254740993}`, `{"a": 1,  "b":"<>&"}`, "grün 日本 🚀", " \n", string(all),
	} {
		e.roundTrip(r, e.message("content.a", body))
	}
}

func checkLargeBodies(e *env) {
	r := e.receive("g", 10, "content.a")
	most := 4 << 20
	if limit := e.tr.Traits().MaxMessage; limit > 0 {
		most = min(most, limit*3/4) // the rest is for headers
	}
	for _, size := range []int{64 << 10, 200_001, most} {
		body := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:min(size, most)]
		e.roundTrip(r, e.message("content.a", string(body)))
	}
}

func checkOddTopics(e *env) {
	most := transport.MaxTopicBytes
	if limit := e.tr.Traits().MaxTopic; limit > 0 {
		most = min(most, limit)
	}
	topics := []string{
		"a", "A", "a b", " a ", "a/b", "a:b", "a;b", "a,b", "a\tb", "a\"b", "a'b", `a\b`, "a%b", "a_b", "a$b", "{a}",
		"grün", "日本.語", "🚀", "-", "_", "0", ".",
		strings.Repeat("x", most),
		strings.Repeat("日", most/3),
		strings.Repeat("a.", most/2) + "b",
	}
	var odd []string
	for _, topic := range topics {
		if len(topic) <= most {
			odd = append(odd, topic)
		}
	}
	r := e.receive("g", 10, odd...)
	for _, topic := range odd {
		e.roundTrip(r, e.message(topic, topic))
	}
}
