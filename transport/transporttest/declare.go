package transporttest

import (
	"errors"

	"github.com/capbus/gocap/transport"
)

func declareCases() []testCase {
	const why = "Declarer: Declare makes the queues of groups known before their first Receive."
	return []testCase{
		{
			name:  "a declared group misses nothing",
			why:   why,
			needs: claimsDeclare,
			run: func(e *env) {
				first := e.receive("first", 10, "declare.a")
				e.declare("late", "declare.a")
				e.declare("late", "declare.a")
				res := e.try(e.Context(), e.messages("declare.a", 3)...)
				e.sameBodies(first.nextAcked(3), 3)
				late := e.start("late", 10, nil, "declare.a")
				e.sameBodies(late.nextAcked(3), 3)
				e.wantErrors(res, nil, nil, nil)
			},
		},
		{
			name:  "declaring takes nothing from a receiver",
			why:   why + " It consumes nothing, and may be repeated.",
			needs: claimsDeclare,
			run: func(e *env) {
				r := e.receive("g", 10, "declare.a")
				e.declare("g", "declare.b")
				res := e.send(e.message("declare.a", "0"), e.message("declare.b", "1"))
				e.sameBodies(r.nextAcked(2), 2)
				res.stored()
				e.nothing(r)
			},
		},
	}
}

func claimsDeclare(tr transport.Transport) bool {
	_, ok := tr.(transport.Declarer)
	return ok
}

func (e *env) declare(group string, topics ...string) {
	e.Helper()
	d, ok := e.tr.(transport.Declarer)
	if !ok {
		e.Fatalf("not a Declarer")
	}
	if err := d.Declare(e.Context(), transport.Source{Group: e.group(group), Topics: topics}); err != nil {
		e.Fatalf("declare: %v (may pass by itself: %t)", err, errors.Is(err, transport.ErrUnavailable))
	}
}
