package sqlqueue_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap/transport/sqlqueue"
)

const someDSN = "postgres://shop:secret-word@db/shop" //nolint:gosec // what must not be shown

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlqueue.Config{
		"one of DSN and DB":      {},
		"give one":               {DSN: someDSN, DB: new(sql.DB)},
		"MaxConns is for a pool": {DB: new(sql.DB), MaxConns: 3},
		"DSN is not":             {DSN: "postgres://shop:secret-word%@db"}, //nolint:gosec // what must not be shown
		"MaxConns":               {DSN: someDSN, MaxConns: -1},
		"Schema":                 {DSN: someDSN, Schema: `a"b`},
		"at most 63 bytes":       {DSN: someDSN, Schema: strings.Repeat("s", 64)},
		"TablePrefix":            {DSN: someDSN, TablePrefix: "a-b"},
		"begin with a digit":     {DSN: someDSN, TablePrefix: "1a"},
		"at most 32 letters":     {DSN: someDSN, TablePrefix: strings.Repeat("p", 33)},
		"PollInterval":           {DSN: someDSN, PollInterval: -1},
		"RequestTimeout":         {DSN: someDSN, RequestTimeout: -1},
		"Lease":                  {DSN: someDSN, Lease: time.Millisecond},
		"MaxAge":                 {DSN: someDSN, MaxAge: -1},
		"MaxMessageBytes":        {DSN: someDSN, MaxMessageBytes: 1 << 30},
	} {
		err := sqlqueue.New(cfg).Validate()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
	if err := sqlqueue.New(sqlqueue.Config{DSN: someDSN, Schema: "My Schema", MaxAge: time.Hour}).Validate(); err != nil {
		t.Error(err)
	}
	err := sqlqueue.New(sqlqueue.Config{DSN: someDSN, MaxConns: -1, MaxAge: -1}).Validate()
	if !strings.Contains(err.Error(), "MaxConns") || !strings.Contains(err.Error(), "MaxAge") {
		t.Errorf("not all problems: %v", err)
	}
}

func TestNothingShowsThePassword(t *testing.T) {
	t.Parallel()
	cfg := sqlqueue.Config{DSN: someDSN}
	tr := sqlqueue.New(cfg)
	for _, s := range []string{
		fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), cfg.LogValue().String(),
		fmt.Sprint(tr), fmt.Sprintf("%#v", tr), tr.LogValue().String(), tr.Traits().Destination,
	} {
		if strings.Contains(s, "secret") || !strings.Contains(s, "db:5432 shop") {
			t.Errorf("it says %s", s)
		}
	}
}
