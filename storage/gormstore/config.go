package gormstore

import (
	"errors"
	"fmt"
	"io"

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
