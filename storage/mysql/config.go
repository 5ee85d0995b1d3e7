package mysql

import (
	"errors"
	"fmt"
	"io"

	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// DefaultMaxConns is the default of Config.MaxConns.
const DefaultMaxConns = 20

// Config configures Open. The zero value is good.
type Config struct {
	// TablePrefix, Schema and Binders are as in gormstore.Config. Schema is
	// another database of the same server; a transaction reaches both.
	TablePrefix string
	Schema      string
	Binders     []storage.TxBinder

	// MaxConns is the most connections of the pool. Those that are not used are
	// kept for three minutes. Defaults to 20.
	MaxConns int

	// GORM is the configuration of the *gorm.DB; its ConnPool and Dialector are
	// set by Open. Defaults to gorm's own defaults.
	GORM *gorm.Config
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if err := c.store(nil).Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxConns < 0 {
		errs = append(errs, fmt.Errorf("mysql: Config.MaxConns is %d, less than 0", c.MaxConns))
	}
	if c.GORM != nil && (c.GORM.ConnPool != nil || c.GORM.Dialector != nil) {
		errs = append(errs, errors.New("mysql: Config.GORM has a ConnPool or a Dialector; Open makes them"))
	}
	if c.GORM != nil && c.GORM.DryRun {
		errs = append(errs, errors.New("mysql: Config.GORM is in DryRun mode"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	return c
}

// gormConfig copies GORM, which gorm.Open writes into.
func (c Config) gormConfig() *gorm.Config {
	if c.GORM == nil {
		return &gorm.Config{}
	}
	g := *c.GORM
	return &g
}

func (c Config) store(pool io.Closer) gormstore.Config {
	return gormstore.Config{TablePrefix: c.TablePrefix, Schema: c.Schema, Binders: c.Binders, Closer: pool}
}
