package gormstore

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/capbus/gocap/storage"
)

// DefaultPrefix begins the names of all tables unless Config says otherwise.
const DefaultPrefix = "cap_"

// maxPrefix leaves room for the longest of our names within the 63 bytes that
// PostgreSQL, the strictest, keeps of an identifier.
const maxPrefix = 32

// Config configures a Store. The zero value is good.
type Config struct {
	// TablePrefix begins the names of all tables and indexes: letters, digits
	// and underscores, not a digit first, at most 32 bytes. It is used exactly
	// as given, in quotes. Defaults to "cap_".
	TablePrefix string

	// Schema is where the tables are: a schema in PostgreSQL, a database of the
	// server in MySQL and MariaDB. It must be there. It is used exactly as given,
	// in quotes, so that upper case, dashes and reserved words are well; at most
	// 63 bytes, without quotes, backticks and control characters. SQLite has none.
	// Defaults to what the connection says (search_path, or its database).
	Schema string

	// Unprepared, when set, is given to the driver as the first argument of the
	// store's own statements: for pgx it is pgx.QueryExecModeExec, so that
	// PostgreSQL plans them for the size that the tables have at that moment, and
	// they need no session. Without it, plans are kept as the driver likes, which
	// is well, too. Defaults to none; package postgres sets it.
	Unprepared any

	// InTx, when set, is given to the driver as an argument before those of the
	// statement that settles a message in its handler's transaction: for pgx it is
	// a pgx.QueryRewriter that returns an error, with SQLSTATE 25P01, when the
	// connection is in no transaction. So a handler that has sent a COMMIT by itself
	// is found out without asking the server; without it, PostgreSQL is asked once
	// a transaction. Defaults to none; package postgres sets it.
	InTx any

	// Binders teach Bind further types of transaction; they are asked, in
	// order, before the types that it knows itself. Defaults to none.
	Binders []storage.TxBinder

	// Closer is what Store.Close closes: set by packages whose Open made the
	// *gorm.DB. Defaults to nil: Close leaves the *gorm.DB alone.
	Closer io.Closer
}

// Validate reports every value that cannot be used.
func (c Config) Validate() error {
	var errs []error
	if c.TablePrefix != "" {
		if err := checkIdentifier("Config.TablePrefix", c.TablePrefix, maxPrefix); err != nil {
			errs = append(errs, err)
		}
	}
	if err := checkSchema(c.Schema); err != nil {
		errs = append(errs, err)
	}
	for i, b := range c.Binders {
		if b == nil {
			errs = append(errs, fmt.Errorf("gormstore: Config.Binders[%d] is nil", i))
		}
	}
	return errors.Join(errs...)
}

func (c Config) prefix() string {
	if c.TablePrefix == "" {
		return DefaultPrefix
	}
	return c.TablePrefix
}

// maxSchema is what PostgreSQL keeps of an identifier; MySQL keeps 64 characters.
const maxSchema = 63

func checkSchema(name string) error {
	bad := func(r rune) bool {
		return r == '"' || r == '`' || r == '\'' || r == utf8.RuneError || unicode.IsControl(r)
	}
	switch {
	case len(name) > maxSchema:
		return fmt.Errorf("gormstore: Config.Schema has %d bytes, at most %d are allowed", len(name), maxSchema)
	case strings.ContainsFunc(name, bad):
		return fmt.Errorf("gormstore: Config.Schema %q has a quote, a control character or invalid UTF-8 in it", name)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("gormstore: Config.Schema %q begins or ends with a space", name)
	}
	return nil
}

// checkIdentifier accepts names that every database takes, quoted or not, and
// that cannot end a quotation.
func checkIdentifier(field, name string, limit int) error {
	if len(name) > limit {
		return fmt.Errorf("gormstore: %s has %d bytes, at most %d are allowed", field, len(name), limit)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return fmt.Errorf("gormstore: %s %q is not an identifier: "+
				"only letters, digits and underscores, and no digit first", field, name)
		}
	}
	return nil
}
