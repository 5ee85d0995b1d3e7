package gormtracker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Defaults of Config.
const (
	DefaultPrefix    = "cap_"
	DefaultRetention = 30 * 24 * time.Hour
)

// Most bytes of names: what PostgreSQL, the strictest, keeps of an identifier,
// less our own part.
const (
	maxPrefix = 32
	maxSchema = 63
)

// Config configures a Tracker. The zero value is good.
type Config struct {
	// TablePrefix begins the name of the table, which ends in "processed":
	// letters, digits and underscores, not a digit first, at most 32 bytes. It is
	// used exactly as given, in quotes. Defaults to "cap_".
	TablePrefix string

	// Schema is where the table is: a schema in PostgreSQL, a database of the
	// server in MySQL and MariaDB. It must be there. It is used exactly as given,
	// in quotes; at most 63 bytes, without quotes, backticks and control
	// characters. SQLite has none. Defaults to what the connection says.
	Schema string

	// Tx finds the transaction in which the methods work, a *gorm.DB: with
	// cap.TxFromContext it is the inbox transaction of the handler that runs, if
	// the inbox is in the same database. Key, writes and the message's success are
	// then committed together. Its error is that of the method. Defaults to nil:
	// Once has a transaction of its own, see TxFromContext; the others have none.
	Tx func(ctx context.Context) (any, error)

	// Retention is how old a key must be for Purge to delete it. What may come
	// again later than that is handled again: a message that has failed for good
	// can be requeued for Options.FailedMessageExpiredAfter (15 days). Defaults to
	// 30 days.
	Retention time.Duration
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("gormtracker: Config."+format, args...))
	}
	if len(c.TablePrefix) > maxPrefix {
		refuse("TablePrefix has %d bytes, at most %d are allowed", len(c.TablePrefix), maxPrefix)
	}
	digit := func(r rune) bool { return r >= '0' && r <= '9' }
	letter := func(r rune) bool { return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	if strings.ContainsFunc(c.TablePrefix, func(r rune) bool { return !letter(r) && !digit(r) }) ||
		strings.IndexFunc(c.TablePrefix, digit) == 0 {
		refuse("TablePrefix %q is not an identifier: only letters, digits and underscores, and no digit first", c.TablePrefix)
	}
	if len(c.Schema) > maxSchema {
		refuse("Schema has %d bytes, at most %d are allowed", len(c.Schema), maxSchema)
	}
	if strings.TrimSpace(c.Schema) != c.Schema || strings.ContainsFunc(c.Schema, func(r rune) bool {
		return strings.ContainsRune("\"`'", r) || r == utf8.RuneError || unicode.IsControl(r)
	}) {
		refuse("Schema %q has a quote, a control character, invalid UTF-8, or a space at an end", c.Schema)
	}
	if c.Retention < 0 {
		refuse("Retention is negative; 0 is the default of 30 days")
	}
	return errors.Join(errs...)
}
