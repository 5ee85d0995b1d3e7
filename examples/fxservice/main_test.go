//go:build !capnofx

package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/capbus/gocap/examples/fxservice/services"
	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/storage/gormstore"
	"github.com/capbus/gocap/storage/postgres"
)

func TestOnServers(t *testing.T) {
	t.Parallel()
	version := "fx" + strings.ToLower(rand.Text()[:12])
	place := services.Servers(database(t, version), testenv.RabbitMQ())
	place.Version = version
	t.Cleanup(func() { deleteQueues(t, version) })
	tell(t, place)
}

func TestOnFiles(t *testing.T) {
	t.Parallel()
	tell(t, services.Files(t.TempDir()))
}

// tell runs the application and waits until the coupons' answer is with the shop.
func tell(t *testing.T, place services.Place) {
	t.Helper()
	opened := map[string]*gormstore.Store{}
	open := place.Open
	place.Open = func(service string) (store *gormstore.Store, err error) {
		store, err = open(service)
		opened[service] = store
		return store, err
	}
	app := fxtest.New(t, application(place), fx.Invoke(demo))
	app.RequireStart()
	var all []services.Withdrawal
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); len(all) == 0 && time.Now().Before(end); <-tick.C {
		if err := opened["shop"].DB().Find(&all).Error; err != nil {
			t.Fatal(err)
		}
	}
	if len(all) != 1 || all[0].Number != 3 {
		t.Errorf("the shop has heard of %v, want three coupons, once", all)
	}
	for service, table := range map[string]string{"shop": "products", "coupon": "coupons"} {
		var n int64
		if err := opened[service].DB().Table(table).Count(&n).Error; err != nil || n != 0 {
			t.Errorf("%d %s are left, %v", n, table, err)
		}
	}
	app.RequireStop()
	for name, store := range opened {
		if err := store.DB().Exec("SELECT 1").Error; err == nil {
			t.Errorf("the database of %s is open after the end", name)
		}
	}
}

// database makes a PostgreSQL database that is dropped after the test.
func database(t *testing.T, name string) string {
	t.Helper()
	admin, err := postgres.Open(testenv.Postgres(), postgres.Config{GORM: &gorm.Config{Logger: logger.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.DB().Exec("CREATE DATABASE " + name).Error; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.DB().WithContext(context.WithoutCancel(t.Context())).Exec("DROP DATABASE " + name + " WITH (FORCE)").Error; err != nil {
			t.Error(err)
		}
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(testenv.Postgres())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// deleteQueues deletes what the application has declared.
func deleteQueues(t *testing.T, version string) {
	t.Helper()
	conn, err := amqp091.Dial(testenv.RabbitMQ())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"shop", "coupon"} {
		if n, err := ch.QueueDelete(group+"."+version, false, false, false); err != nil || n != 0 {
			t.Errorf("queue of %s: %d messages, %v", group, n, err)
		}
	}
	if err := ch.ExchangeDelete("gocap.fxservice."+version, false, false); err != nil {
		t.Error(err)
	}
}
