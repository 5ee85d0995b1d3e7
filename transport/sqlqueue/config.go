package sqlqueue

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/capbus/gocap/transport"
)

// DefaultPrefix begins the names of the tables; Config.TablePrefix changes it.
const DefaultPrefix = "cap_"

// Config configures a Transport. It needs one of DSN and DB.
type Config struct {
	// DSN is the database, a URL or key=value pairs as for libpq. The Transport
	// has a pool of its own then, which Close closes.
	DSN string
	// DB is a pool made with pgx's stdlib instead, which the Transport shares and
	// does not close. See the package comment for the connections it uses.
	DB *sql.DB
	// MaxConns bounds the connections of the pool made for DSN. Defaults to 10.
	MaxConns int

	// Schema is where the tables are; it must be there. It is used exactly as
	// given, in quotes; at most 63 bytes, without quotes and control characters.
	// Defaults to what the connection says (search_path).
	Schema string
	// TablePrefix begins the names of the tables: letters, digits and
	// underscores, not a digit first, at most 32 bytes. Defaults to "cap_".
	TablePrefix string
	// SkipSetup: the tables are there, see SetupSQL. Defaults to false: they are
	// made when they are first needed.
	SkipSetup bool

	// PollInterval bounds how long a message waits for a receiver that has
	// nothing to do. Messages sent by the same Transport wait for none of it, nor
	// do those that follow others closely. Defaults to 500 ms.
	PollInterval time.Duration
	// Lease is how long a receiver that was killed keeps what it had in hand
	// from others of its group. A receiver that cannot renew it ends with an
	// error. At least 1 s. Defaults to 10 s.
	Lease time.Duration
	// RequestTimeout bounds each statement. Defaults to 10 s.
	RequestTimeout time.Duration
	// MaxMessageBytes is the largest body that is sent. At most 256 MiB. Defaults
	// to 16 MiB.
	MaxMessageBytes int
	// MaxAge is how long a message is kept for groups that do not take it; then
	// it is deleted by any Receive that runs, with a Warn that counts. It is for
	// all groups and versions on the tables, whoever serves them: the shortest
	// one counts. Zero: for ever.
	MaxAge time.Duration
	// Logger gets what no call can return. Defaults to slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxConns = cmp.Or(c.MaxConns, 10)
	c.TablePrefix = cmp.Or(c.TablePrefix, DefaultPrefix)
	c.PollInterval = cmp.Or(c.PollInterval, 500*time.Millisecond)
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 16<<20)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (c Config) validate() error {
	given := c
	c = c.withDefaults()
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("sqlqueue: "+format, args...))
		}
	}
	bad((c.DSN == "") == (c.DB == nil), "give one of DSN and DB")
	if c.DSN != "" {
		_, err := pgx.ParseConfig(c.DSN)
		// The error of ParseConfig may quote the address, password included.
		bad(err != nil, "DSN is not an address such as postgres://user:password@host:5432/database; escape reserved characters in user and password")
	}
	bad(c.DB != nil && given.MaxConns != 0, "MaxConns is for a pool made for DSN; bound DB by its SetMaxOpenConns")
	bad(c.MaxConns < 0, "MaxConns is negative")
	if err := checkSchema(c.Schema); err != nil {
		errs = append(errs, err)
	}
	if err := checkPrefix(c.TablePrefix); err != nil {
		errs = append(errs, err)
	}
	for name, d := range map[string]time.Duration{"PollInterval": c.PollInterval, "RequestTimeout": c.RequestTimeout} {
		bad(d < 0, "%s is negative; every wait has a limit here", name)
	}
	bad(c.Lease < time.Second, "Lease is %v; less than 1s cannot be renewed in time", c.Lease)
	bad(c.MaxAge < 0, "MaxAge is negative; leave it out to keep messages until their groups have them")
	bad(c.MaxMessageBytes < 0 || c.MaxMessageBytes > 256<<20, "MaxMessageBytes is %d; 1 to 256 MiB are allowed", c.MaxMessageBytes)
	return errors.Join(errs...)
}

func checkSchema(name string) error {
	bad := func(r rune) bool {
		return r == '"' || r == '\'' || r == '$' || r == utf8.RuneError || unicode.IsControl(r)
	}
	if len(name) > 63 || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("sqlqueue: Schema %q must have at most 63 bytes, without quotes, $, control characters and invalid UTF-8", name)
	}
	return nil
}

func checkPrefix(name string) error {
	bad := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if len(name) > 32 || strings.ContainsFunc(name, bad) || name[0] >= '0' && name[0] <= '9' {
		return fmt.Errorf("sqlqueue: TablePrefix %q must have at most 32 letters, digits and underscores, and not begin with a digit", name)
	}
	return nil
}

// pool returns DB, or a new pool. A DSN that is wrong gives one that cannot
// connect; Validate says why.
func (c Config) pool() *sql.DB {
	if c.DB != nil {
		return c.DB
	}
	conn, err := pgx.ParseConfig(c.DSN)
	if err != nil {
		return sql.OpenDB(brokenConnector{})
	}
	db := stdlib.OpenDB(*conn)
	db.SetMaxOpenConns(c.MaxConns)
	db.SetMaxIdleConns(c.MaxConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// destination names the database and the tables.
func (c Config) destination(version string) string {
	where := "a database given as DB"
	if conn, err := pgx.ParseConfig(c.DSN); c.DB == nil && err == nil {
		where = net.JoinHostPort(conn.Host, strconv.Itoa(int(conn.Port))) + " " + cmp.Or(conn.Database, conn.User)
	}
	return where + " " + tableName(c.Schema, c.TablePrefix+"queue") + " " + version
}

// LogValue shows the settings without user and password.
func (c Config) LogValue() slog.Value {
	c = c.withDefaults()
	return slog.GroupValue(
		slog.String("destination", c.destination(defaultVersion)),
		slog.Duration("poll_interval", c.PollInterval),
		slog.Duration("lease", c.Lease),
		slog.Duration("request_timeout", c.RequestTimeout),
		slog.Duration("max_age", c.MaxAge),
	)
}

// String is as LogValue, so that printing a Config shows no password.
func (c Config) String() string { return c.LogValue().String() }

// GoString is as String.
func (c Config) GoString() string { return "sqlqueue.Config" + c.String() }

func checkSource(src transport.Source) error {
	if src.Group == "" {
		return errors.New("sqlqueue: source without a group")
	}
	if !isText(src.Group) || len(src.Group) > 2000 {
		return fmt.Errorf("sqlqueue: group %.60q must be valid UTF-8 without NUL, of at most 2000 bytes", src.Group)
	}
	if src.Retry != nil {
		return fmt.Errorf("sqlqueue: group %q asks for broker retry, which this transport has not; give the group an inbox", src.Group)
	}
	for _, p := range src.Topics {
		if err := transport.CheckPattern(p); err != nil {
			return fmt.Errorf("sqlqueue: group %q: %w", src.Group, err)
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
