// Package capwm joins a bus to programs that are built on Watermill: the bus is a
// message.Publisher with an outbox, and Watermill's middleware works on
// subscriptions of the bus.
//
// An application on Watermill's CQRS gets an outbox by one changed line, the
// publisher of its event bus:
//
//	events, err := cqrs.NewEventBusWithConfig(capwm.NewPublisher(bus), config)
//	…
//	err = events.Publish(cap.ContextWithTx(ctx, tx), ProductDeleted{ID: id}) // leaves when tx commits
package capwm
