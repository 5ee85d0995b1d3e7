package memqueue_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/memqueue"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	q := memqueue.New(memqueue.Config{})
	msg := &transport.Message{ID: "1", Topic: "product.deleted", Body: []byte(`{"id":7}`)}

	// Nobody is there yet.
	err := q.Send(ctx, []*transport.Message{msg})[0]
	fmt.Println("unroutable:", errors.Is(err, transport.ErrUnroutable))

	src := transport.Source{Group: "coupon", Topics: []string{"product.*"}, Window: 10}
	if err := q.Declare(ctx, src); err != nil {
		fmt.Println(err)
	}
	done := make(chan error)
	go func() {
		done <- q.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				fmt.Printf("%s %s\n", d.Message().Topic, d.Message().Body)
				_ = d.Ack()
			}
		})
	}()

	fmt.Println("stored:", q.Send(ctx, []*transport.Message{msg})[0] == nil)
	stop()
	fmt.Println("ended:", <-done)
	// Output:
	// unroutable: true
	// product.deleted {"id":7}
	// stored: true
	// ended: <nil>
}
