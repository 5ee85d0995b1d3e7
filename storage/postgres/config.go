package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/storage/gormstore"
)

// Defaults of Config.
const (
	DefaultMaxConns        = 20
	DefaultConnMaxIdleTime = 5 * time.Minute
)

// Config configures Open. The zero value is good.
type Config struct {
	// Schema, TablePrefix and Binders are as in gormstore.Config.
	Schema, TablePrefix string
	Binders             []storage.TxBinder

	// MaxConns bounds the connections of the pool, which stay open while they
	// are in use now and then. Handlers with a transaction, and the application's
	// own use of Store.DB, share them. Negative: no bound. Defaults to 20.
	MaxConns int

	// ConnMaxIdleTime is how long a connection may be idle before it is closed.
	// Negative: for ever. Defaults to 5 min.
	ConnMaxIdleTime time.Duration

	// GORM is the configuration of the *gorm.DB; its ConnPool and Dialector are
	// set by Open. Defaults to gorm's own defaults.
	GORM *gorm.Config
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if err := c.store().Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.GORM != nil && (c.GORM.ConnPool != nil || c.GORM.Dialector != nil) {
		errs = append(errs, errors.New("postgres: Config.GORM has a ConnPool or a Dialector; Open makes them"))
	}
	if c.GORM != nil && c.GORM.DryRun {
		errs = append(errs, fmt.Errorf("postgres: Config.GORM is in DryRun mode"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.ConnMaxIdleTime == 0 {
		c.ConnMaxIdleTime = DefaultConnMaxIdleTime
	}
	return c
}

// gormConfig copies GORM, which gorm.Open writes into.
func (c Config) gormConfig() *gorm.Config {
	g := gorm.Config{}
	if c.GORM != nil {
		g = *c.GORM
	}
	g.DisableAutomaticPing = true
	return &g
}

func (c Config) store() gormstore.Config {
	return gormstore.Config{
		Schema: c.Schema, TablePrefix: c.TablePrefix, Binders: c.Binders, Unprepared: pgx.QueryExecModeExec, InTx: inTx{},
	}
}
