package wmadapter_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/wmadapter"
)

func Example() {
	ch := gochannel.NewGoChannel(gochannel.Config{}, nil)
	tr := wmadapter.New(wmadapter.Config{
		Name:       "gochannel",
		Publisher:  ch,
		Subscriber: wmadapter.Shared(ch),
		NoQueue:    true, // what it is given while nobody listens is gone
	})
	fmt.Println(tr.Validate(), tr.Traits().NoQueue, tr.Traits().Routing)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		src := transport.Source{Group: "coupon", Topics: []string{"product.deleted"}, Window: 10}
		done <- tr.Receive(ctx, src, func(_ context.Context, batch []transport.Delivery) {
			for _, d := range batch {
				fmt.Printf("%s %s\n", d.Message().Topic, d.Message().Body)
				_ = d.Ack()
				stop()
			}
		})
	}()
	msg := &transport.Message{ID: "1", Topic: "product.deleted", Body: []byte(`{"id":7}`)}
	for ctx.Err() == nil { // until somebody listens
		tr.Send(ctx, []*transport.Message{msg})
	}
	fmt.Println("ended:", <-done, tr.Close())
	// Output:
	// <nil> true false
	// product.deleted {"id":7}
	// ended: <nil> <nil>
}

func ExampleNames() {
	name := wmadapter.Names("-.", 45)
	fmt.Println(name("product.deleted"))
	fmt.Println(name("grün/7"))
	fmt.Println(name("a.topic.with.more.than.forty-five.bytes.is.cut"))
	// Output:
	// product.deleted
	// gr_c3_bcn_2f7
	// a.topic.wit__abe9685b0bb06df1caaa3750c85060a3
}
