package testenv

import (
	"context"
	"os"
)

// A Kind is one sort of server.
type Kind struct {
	Name      string // as in a message
	Variable  string // environment variable with the address; "" if tests share none
	Default   string // what the variable holds where it is not set
	BinFolder string // environment variable with the folder of the programs
	Package   string // of Debian

	programs []program
	service  string // in compose.yaml
	dsn      func(addr string) string
	probe    func(ctx context.Context, dsn string) error
	process  func(o own) (node, error)
	config   func(o own) (string, error) // GOCAP_SETTINGS of compose.yaml
	durable  []string                    // settings for a node that is killed and comes back
	fast     []string                    // settings for a node that is thrown away
}

// Kinds lists all sorts of servers that tests need.
func Kinds() []Kind { return []Kind{postgres(), mariaDB(), rabbitMQ(), redis(), nats(), pgBouncer()} }

// Postgres is the address of the PostgreSQL server of the tests, as a URL. Its
// account may create databases and roles.
func Postgres() string { return postgres().address() }

// MySQL is the address of the MariaDB server of the tests, in the form of
// go-sql-driver/mysql, without a database. Its account may create databases and
// users.
func MySQL() string { return mariaDB().address() }

// RabbitMQ is the address of the RabbitMQ server of the tests, with a virtual
// host in which they may declare what they like under unique names.
func RabbitMQ() string { return rabbitMQ().address() }

// Redis is the address of the Redis server of the tests, as a URL with a database
// in which they may set what they like under unique names.
func Redis() string { return redis().address() }

// NATS is the address of the NATS server of the tests, with JetStream, in which they
// may make streams under unique names.
func NATS() string { return nats().address() }

func (k Kind) address() string {
	if address := os.Getenv(k.Variable); address != "" {
		return address
	}
	return k.Default
}

// Probe returns nil if the server answers at the address, takes the account, and
// the account has the rights that tests need.
func (k Kind) Probe(ctx context.Context, address string) error { return k.probe(ctx, address) }
