package transporttest

import (
	"errors"
	"strings"

	"github.com/capbus/gocap/transport"
)

func outcomeCases() []testCase {
	return []testCase{
		{
			name:  "a topic that nobody takes is unroutable",
			why:   "ErrUnroutable is an answer: the broker took part, but no queue takes the topic now. The message is sent again later.",
			needs: claimsRouting,
			run:   checkUnroutable,
		},
		{
			name:  "each message of a batch has its own outcome",
			why:   "It returns one error a message, in the same order.",
			needs: claimsRouting,
			run:   checkOutcomes,
		},
		{
			name: "a name that cannot be sent harms no other message",
			why:  "ErrRejected is an answer: the broker will not take this message (invalid name). One error a message.",
			run:  checkBadNames,
		},
		{
			name: "a message that is too large is refused alone",
			why:  "MaxMessage is the broker's limit in bytes. ErrPermanent, joined to ErrRejected, says that the same message would be refused for ever (its size).",
			needs: func(tr transport.Transport) bool {
				m := tr.Traits().MaxMessage
				return m > 0 && m <= 1<<26
			},
			run: checkTooLarge,
		},
		{
			name: "the same id may be sent twice",
			why:  "An unknown outcome: the message counts as attempted and is sent again.",
			run:  checkSameID,
		},
	}
}

// wantErrors checks one answer a message; nil is success.
func (e *env) wantErrors(res *result, want ...error) {
	e.Helper()
	for i, err := range res.wait() {
		if i < len(want) && !errors.Is(err, want[i]) {
			e.Errorf("message %d: got %v, want %v", i, err, want[i])
		}
	}
}

// checkBadNames sends what Publish would have refused: an engine with rows of
// another program in its table would do so.
func checkBadNames(e *env) {
	bad := []string{
		"",
		strings.Repeat("x", transport.MaxTopicBytes+1),
		"outcome.\x00",
		"outcome.\xff",
	}
	r := e.receive("g", 10, "outcome.a")
	for _, topic := range bad {
		res := e.try(e.Context(), e.message("outcome.a", "0"), e.message(topic, ""), e.message("outcome.a", "1"))
		e.sameBodies(r.nextAcked(2), 2)
		errs := res.wait()
		if len(errs) != 3 {
			continue
		}
		if errs[0] != nil || errs[2] != nil {
			e.Errorf("topic %.20q: the messages beside it got %v and %v", topic, errs[0], errs[2])
		}
		if errors.Is(errs[1], transport.ErrUnavailable) {
			e.Errorf("topic %.20q: %v: one bad name opens the circuit breaker", topic, errs[1])
		}
	}
}

func checkUnroutable(e *env) {
	e.receive("other", 10, "outcome.other")
	m := e.message("outcome.a", "0")
	e.wantErrors(e.try(e.Context(), m), transport.ErrUnroutable)
	r := e.receive("g", 10, "outcome.a")
	res := e.try(e.Context(), m)
	e.sameBodies(r.nextAcked(1), 1)
	e.wantErrors(res, nil)
}

func checkOutcomes(e *env) {
	r := e.receive("g", 10, "outcome.a")
	res := e.try(e.Context(),
		e.message("outcome.nobody", ""),
		e.message("outcome.a", "0"),
		e.message("outcome.nobody", ""),
		e.message("outcome.nobody2", ""),
		e.message("outcome.a", "1"))
	e.sameBodies(r.nextAcked(2), 2)
	no := transport.ErrUnroutable
	e.wantErrors(res, no, nil, no, no, nil)
}

func checkTooLarge(e *env) {
	r := e.receive("g", 10, "outcome.a")
	large := e.message("outcome.a", strings.Repeat("x", e.tr.Traits().MaxMessage+1))
	res := e.try(e.Context(), e.message("outcome.a", "0"), large, e.message("outcome.a", "1"))
	e.sameBodies(r.nextAcked(2), 2)
	e.wantErrors(res, nil, transport.ErrPermanent, nil)
}

func checkSameID(e *env) {
	r := e.receive("g", 10, "outcome.a")
	m := e.message("outcome.a", "0")
	for range 2 {
		res := e.try(e.Context(), m)
		if got := r.nextAcked(1)[0]; got.ID != m.ID {
			e.Errorf("message %q came, not %q", got.ID, m.ID)
		}
		e.wantErrors(res, nil)
	}
}
