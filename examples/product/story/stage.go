package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/storage/sqlite"
)

// stage is where the story is told: a folder with programs and databases.
type stage struct {
	dir, url, version string
	running           map[string]*actor
}

// actor is a program that runs.
type actor struct {
	cmd    *exec.Cmd
	copied chan struct{} // closed when all it wrote is copied
}

const patience = 20 * time.Second

func (s *stage) build(ctx context.Context, programs ...string) error {
	for _, p := range programs {
		//nolint:gosec // a program of this module
		cmd := exec.CommandContext(ctx, "go", "build", "-o", s.dir+string(filepath.Separator), "github.com/capbus/gocap/examples/product/"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", p, err, out)
		}
	}
	return nil
}

// start stops the program, if it runs, and starts it with other flags. It has
// done what they say when start returns.
func (s *stage) start(ctx context.Context, program string, flags ...string) error {
	if err := s.stop(program); err != nil {
		return err
	}
	fmt.Println("$", program, flags)
	args := append([]string{"-db", s.db(program), "-rabbitmq", s.url, "-version", s.version}, flags...)
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, program), args...) //nolint:gosec // built by this program
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	a := &actor{cmd: cmd, copied: make(chan struct{})}
	s.running[program] = a
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	go func() {
		defer close(a.copied)
		_, _ = io.Copy(os.Stdout, lines)
	}()
	if err != nil {
		return fmt.Errorf("%s did not start: %w", program, err)
	}
	return nil
}

// stop interrupts the program and waits for its end.
func (s *stage) stop(program string) error {
	a := s.running[program]
	if a == nil {
		return nil
	}
	delete(s.running, program)
	err := a.cmd.Process.Signal(os.Interrupt)
	<-a.copied
	if err = errors.Join(err, a.cmd.Wait()); err != nil {
		return fmt.Errorf("%s ended: %w", program, err)
	}
	return nil
}

func (s *stage) stopAll() error {
	var errs []error
	for program := range s.running {
		errs = append(errs, s.stop(program))
	}
	return errors.Join(errs...)
}

// expect checks what a query of a program's database counts.
func (s *stage) expect(program, query string, want int) error {
	store, err := sqlite.Open(s.db(program), sqlite.Config{GORM: &gorm.Config{Logger: logger.Discard}})
	if err != nil {
		return err
	}
	var got int
	if err := errors.Join(store.DB().Raw(query).Row().Scan(&got), store.Close()); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if got != want {
		return fmt.Errorf("%s: %s is %d, want %d", program, query, got, want)
	}
	return nil
}

func (s *stage) until(ctx context.Context, program, query string, want int) error {
	return eventually(ctx, func() error { return s.expect(program, query, want) })
}

func (s *stage) attempts(product, want int) error {
	return s.expect("thirdparty", fmt.Sprintf("SELECT count(*) FROM attempts WHERE product_id = %d", product), want)
}

// gone waits until the program has nothing of the product any more.
func (s *stage) gone(ctx context.Context, program string, product int) error {
	count := func(table, column string) string {
		return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = %d", table, column, product)
	}
	switch program {
	case "coupon":
		return s.until(ctx, program, count("coupons", "product_id"), 0)
	case "thirdparty":
		return s.until(ctx, program, count("listings", "product_id"), 0)
	}
	err := s.until(ctx, program, count("products", "id"), 0)
	for _, part := range []string{"images", "prices", "stocks", "reviews", "categories", "translations"} {
		err = errors.Join(err, s.until(ctx, program, count("product_"+part, "product_id"), 0))
	}
	return err
}

// parked waits until so many messages are in the queue that nobody consumes.
func (s *stage) parked(ctx context.Context, want int) error {
	return eventually(ctx, func() error {
		return s.broker(func(ch *amqp091.Channel) error {
			q, err := ch.QueueDeclarePassive("thirdparty."+s.version+".dlq", true, false, false, false, nil)
			if err == nil && q.Messages != want {
				err = fmt.Errorf("%d messages are parked, want %d", q.Messages, want)
			}
			return err
		})
	})
}

// clear ends what runs and deletes the queues.
func (s *stage) clear() error {
	err := s.stopAll()
	return errors.Join(err, s.broker(func(ch *amqp091.Channel) error {
		for _, q := range []string{"coupon", "thirdparty"} {
			for _, end := range []string{"", ".retry", ".dlq"} {
				if _, err := ch.QueueDelete(q+"."+s.version+end, false, false, false); err != nil {
					return err
				}
			}
		}
		return ch.ExchangeDelete("gocap.example."+s.version, false, false)
	}))
}

func (s *stage) broker(f func(ch *amqp091.Channel) error) error {
	c, err := amqp091.Dial(s.url)
	if err != nil {
		return fmt.Errorf("RabbitMQ: %w", err)
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

// eventually tries until f succeeds, or it takes too long.
func eventually(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
