package main

import (
	"context"
	"testing"
	"time"

	"github.com/capbus/gocap/examples/fxservice/services"
	"github.com/capbus/gocap/storage/gormstore"
)

// TestWithoutFx: the services work as they do with fx, and everything is closed
// when they end.
func TestWithoutFx(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	opened := map[string]*gormstore.Store{}
	place := services.Files(t.TempDir())
	open := place.Open
	place.Open = func(service string) (store *gormstore.Store, err error) {
		store, err = open(service)
		opened[service] = store
		return store, err
	}
	var all []services.Withdrawal
	err := run(ctx, place, func(ctx context.Context, shop *services.Shop, coupons *services.Coupons) error {
		defer end() // as Ctrl-C
		if err := services.Demo(ctx, shop, coupons); err != nil {
			return err
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for len(all) == 0 && ctx.Err() == nil {
			<-tick.C
			if err := opened["shop"].DB().Find(&all).Error; err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(all) != 1 || all[0].Number != 3 {
		t.Errorf("the shop has heard of %v, want three coupons, once; %v", all, err)
	}
	for name, store := range opened {
		if err := store.DB().Exec("SELECT 1").Error; err == nil {
			t.Errorf("the database of %s is open after the end", name)
		}
	}
}
