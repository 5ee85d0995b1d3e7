package cap

import (
	"errors"
	"fmt"
)

var errNotRunning = errors.New("the bus does not run; a group can be paused between Start and Stop, and a Stop ends the pause")

// Pause stops a group in this process: it receives nothing more, and starts no
// handler; handlers that run finish. What it has not started stays in the table,
// or with the broker, until Resume; rows that this process owns are not taken by
// others meanwhile, who go on with what they receive themselves. (memqueue, in
// process, keeps messages of topics that a paused group takes in the outbox.)
// The group is named as in its subscriptions. Pause lasts until Resume or Stop,
// and may be repeated. Error: the bus does not run, or has no such group.
func (b *Bus) Pause(group string) error {
	e := b.engines.get()
	if e == nil {
		return fmt.Errorf("cap: pause %s: %w", group, errNotRunning)
	}
	if err := e.consumer.Pause(group); err != nil {
		return fmt.Errorf("cap: pause: %w", err)
	}
	return nil
}

// Resume ends what Pause began. Of a group that is not paused it does nothing.
// Errors are those of Pause.
func (b *Bus) Resume(group string) error {
	e := b.engines.get()
	if e == nil {
		return fmt.Errorf("cap: resume %s: %w", group, errNotRunning)
	}
	if err := e.consumer.Resume(group); err != nil {
		return fmt.Errorf("cap: resume: %w", err)
	}
	e.handleRetry.Kick()
	e.handleOrder.Kick()
	return nil
}
