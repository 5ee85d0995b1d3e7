package cap

import (
	"context"

	"github.com/capbus/gocap/subscribe"
)

// Subscribe adds a handler to subscribe.Default, which every bus serves whose
// Options name no other registry. It is for program start, like http.HandleFunc:
// it panics on a wrong topic, a nil handler, a group and name that are there
// already (with both places), or when a bus serves the registry already. To get
// an error instead, use Add of a subscribe.Registry.
func Subscribe[T any](topic string, fn func(context.Context, T) error, opts ...subscribe.Option) {
	if err := subscribe.Default.Add(subscribe.To(topic, fn, opts...)); err != nil {
		panic("cap: " + err.Error())
	}
}
