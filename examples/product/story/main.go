// Command story runs product, coupon and thirdparty through what may happen to
// them, and checks what is left in their databases and queues.
//
//	go run ./examples/product/story
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/capbus/gocap/cap"
)

func main() {
	url := flag.String("rabbitmq", cmp.Or(os.Getenv("GOCAP_RABBITMQ_URL"), "amqp://guest:guest@127.0.0.1:5672/"), "`address` of the broker")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url); err != nil {
		fmt.Fprintln(os.Stderr, "story:", err)
		os.Exit(1)
	}
	fmt.Println("all is as it should be")
}

// run tells the story in a folder and with queues of its own, and leaves nothing.
func run(ctx context.Context, url string) (err error) {
	dir, err := os.MkdirTemp("", "gocap-story")
	if err != nil {
		return err
	}
	s := &stage{dir: dir, url: url, version: "story" + cap.NewID()[24:], running: map[string]*actor{}}
	defer func() { err = errors.Join(err, s.clear(), os.RemoveAll(dir)) }()
	if err := s.build(ctx, "product", "coupon", "thirdparty"); err != nil {
		return err
	}
	for _, chapter := range []struct {
		name string
		tell func(context.Context, *stage) error
	}{
		{"a recall that only thirdparty takes, which has never run, waits; it costs no attempt", absent},
		{"thirdparty starts and gets it; its first attempt fails, the broker tries again", late},
		{"a product is deleted: seven tables, coupons and listing", deleted},
		{"thirdparty is broken: the message is parked, the others do not notice", broken},
		{"thirdparty is mended, and what was parked goes back", mended},
	} {
		fmt.Println("\n#", chapter.name)
		if err := chapter.tell(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", chapter.name, err)
		}
	}
	return s.checkEnd()
}

func absent(ctx context.Context, s *stage) error {
	if err := s.start(ctx, "coupon", "-seed", "4"); err != nil {
		return err
	}
	if err := s.start(ctx, "product", "-seed", "4", "-recall", "1"); err != nil {
		return err
	}
	return s.until(ctx, "product", "SELECT count(*) FROM cap_published WHERE retries = 0 AND expires_at IS NULL AND last_error LIKE '%no queue takes the topic%'", 1)
}

func late(ctx context.Context, s *stage) error {
	if err := s.start(ctx, "thirdparty", "-seed", "4", "-ttl", "500ms", "-fail", "1"); err != nil {
		return err
	}
	return errors.Join(s.until(ctx, "thirdparty", "SELECT count(*) FROM listings WHERE product_id = 1", 0), s.attempts(1, 2))
}

func deleted(ctx context.Context, s *stage) error {
	if err := s.start(ctx, "product", "-delete", "2"); err != nil {
		return err
	}
	return errors.Join(s.gone(ctx, "product", 2), s.gone(ctx, "coupon", 2), s.gone(ctx, "thirdparty", 2), s.attempts(2, 2))
}

func broken(ctx context.Context, s *stage) error {
	if err := s.start(ctx, "thirdparty", "-ttl", "500ms", "-fail", "99"); err != nil {
		return err
	}
	if err := s.start(ctx, "product", "-delete", "3"); err != nil {
		return err
	}
	return errors.Join(s.gone(ctx, "product", 3), s.gone(ctx, "coupon", 3), s.parked(ctx, 1), s.attempts(3, 3))
}

func mended(ctx context.Context, s *stage) error {
	if err := s.start(ctx, "thirdparty", "-ttl", "500ms", "-unpark"); err != nil {
		return err
	}
	return errors.Join(s.gone(ctx, "thirdparty", 3), s.parked(ctx, 0), s.attempts(3, 4))
}

// checkEnd: what was to go is gone, once, and nothing else.
func (s *stage) checkEnd() error {
	if err := s.stopAll(); err != nil {
		return err
	}
	return errors.Join(
		s.expect("product", "SELECT count(*) FROM products", 2),
		s.expect("product", "SELECT count(*) FROM product_images", 2),
		s.expect("product", "SELECT count(*) FROM cap_published WHERE expires_at IS NULL", 0),
		s.expect("coupon", "SELECT count(*) FROM coupons", 4),
		s.expect("coupon", "SELECT count(*) FROM removals WHERE coupons = 2", 2),
		s.expect("coupon", "SELECT count(*) FROM removals", 2),
		s.expect("thirdparty", "SELECT count(*) FROM listings", 1),
		s.expect("thirdparty", "SELECT count(*) FROM cap_received", 0),
		s.expect("coupon", "SELECT count(*) FROM cap_received", 2),
	)
}

func (s *stage) db(program string) string { return filepath.Join(s.dir, program+".db") }
