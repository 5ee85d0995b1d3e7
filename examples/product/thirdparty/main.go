// Command thirdparty is a partner that lists products of others. Its lesson: a
// service may have no inbox, and leave the retries to the broker. Its handlers
// must bear to run twice; deleting does.
//
//	go run ./examples/product/thirdparty -seed 5
//	go run ./examples/product/thirdparty -ttl 1s -fail 1    # the second attempt succeeds
//	go run ./examples/product/thirdparty -ttl 1s -fail 99   # what comes ends in thirdparty.v1.dlq
//	go run ./examples/product/thirdparty -unpark            # and comes back
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
	"github.com/capbus/gocap/examples/product/setup"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport/rabbitmq"
)

// Listing is a product in the partner's shop.
type Listing struct {
	ProductID int `gorm:"primaryKey;autoIncrement:false"`
}

// Attempt is a run of a handler.
type Attempt struct {
	ID        int `gorm:"primaryKey"`
	ProductID int
	Number    int
}

type shop struct {
	db    *gorm.DB
	fails int
}

func main() { setup.Main(run) }

func run() (err error) {
	s := setup.Flags("thirdparty")
	seed := flag.Int("seed", 0, "list the products 1 to `n`, unless they are")
	fails := flag.Int("fail", 0, "the first `n` attempts of each message fail")
	ttl := flag.Duration("ttl", time.Minute, "`wait` until the broker tries again; a queue keeps the first it was given")
	unpark := flag.Bool("unpark", false, "send back what is parked")
	flag.Parse()
	shop := &shop{fails: *fails}
	retry := subscribe.BrokerRetry(3, *ttl) // of all subscriptions: the group has no inbox
	err = s.Open(cap.Options{
		Subscriptions: []subscribe.Subscription{
			subscribe.To("product.deleted", shop.remove, retry),
			subscribe.To("product.recalled", shop.remove, retry),
		},
		FailedThresholdCallback: func(_ context.Context, f cap.FailedInfo) {
			log.Printf("parked after %d attempts: %s: %s", f.Attempts, f.Message.Topic, f.LastError) // here somebody would be called
		},
	}, &Listing{}, &Attempt{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	shop.db = s.Store.DB()
	return s.Run(func(ctx context.Context) error {
		for id := 1; id <= *seed; id++ {
			if err := shop.db.WithContext(ctx).FirstOrCreate(&Listing{ProductID: id}).Error; err != nil {
				return err
			}
		}
		if *unpark {
			return unparkAll(ctx, s)
		}
		return nil
	})
}

// remove takes a product out of the shop, in a transaction of its own: there is
// no inbox transaction.
func (s *shop) remove(ctx context.Context, p setup.Product) error {
	info, _ := cap.InfoFromContext(ctx)
	db := s.db.WithContext(ctx)
	if err := db.Create(&Attempt{ProductID: p.ID, Number: info.Attempt}).Error; err != nil {
		return err
	}
	if info.Attempt <= s.fails {
		return fmt.Errorf("the shop cannot remove product %d now", p.ID)
	}
	return db.Where("product_id = ?", p.ID).Delete(&Listing{}).Error
}

// unparkAll is what an operator does when the cause is mended.
func unparkAll(ctx context.Context, s *setup.Service) error {
	broker := s.Broker.ForVersion(s.Version).(*rabbitmq.Transport) //nolint:forcetypeassert // a transport's other versions are of its type
	for {
		switch p, err := broker.Unpark(ctx, "thirdparty."+s.Version, ""); {
		case errors.Is(err, rabbitmq.ErrNotParked):
			return nil
		case err != nil:
			return err
		default:
			log.Printf("sent back: %s %s, parked with %q", p.Message.Topic, p.Message.Body, p.Reason)
		}
	}
}
