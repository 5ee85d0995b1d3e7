package watermill

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx

	"github.com/capbus/gocap/internal/testenv"
	"github.com/capbus/gocap/transport"
	"github.com/capbus/gocap/transport/wmadapter"
)

// A server of one's own each: a message in hand holds a connection, and in
// PostgreSQL it holds up what others of the cluster have published since.

// ackDeadline is how long a message in hand holds up others: then it is taken back
// and given again.
const ackDeadline = time.Second

func TestPostgreSQL(t *testing.T) { // not beside others: it is slow enough
	suite(t, openPostgreSQL(t), true)
}

func BenchmarkPostgreSQL(b *testing.B) { bench(b, openPostgreSQL(b)) }

func openPostgreSQL(tb testing.TB) func(testing.TB) wmadapter.Config {
	tb.Helper()
	db := pool(tb, "pgx", testenv.StartPostgres(tb, "max_connections=450").DSN)
	return func(testing.TB) wmadapter.Config {
		id := unit()
		offsets := wmsql.DefaultPostgreSQLOffsetsAdapter{
			GenerateMessagesOffsetsTableName: func(topic string) string { return fmt.Sprintf(`"o%s_%s"`, id, topic) },
		}
		return overSQL(db, wmsql.DefaultPostgreSQLSchema{
			GenerateMessagesTableName: func(topic string) string { return fmt.Sprintf(`"m%s_%s"`, id, topic) },
			GeneratePayloadType:       func(string) string { return "BYTEA" },
		}, offsets)
	}
}

func TestMariaDB(t *testing.T) { // not beside others
	suite(t, openMariaDB(t), true)
}

func BenchmarkMariaDB(b *testing.B) { bench(b, openMariaDB(b)) }

func openMariaDB(tb testing.TB) func(testing.TB) wmadapter.Config {
	tb.Helper()
	s := testenv.StartMariaDB(tb, "max-connections=450")
	admin := pool(tb, "mysql", s.DSN)
	_, err := admin.ExecContext(tb.Context(), "CREATE DATABASE w CHARACTER SET utf8mb4 COLLATE utf8mb4_bin") // else groups "a" and "A" share a place
	check(tb, err)
	db := pool(tb, "mysql", strings.TrimSuffix(s.DSN, "/")+"/w?interpolateParams=true&maxAllowedPacket=0")
	return func(testing.TB) wmadapter.Config {
		id := unit()
		return overSQL(db, wmsql.DefaultMySQLSchema{
			GenerateMessagesTableName: func(topic string) string { return fmt.Sprintf("`m%s_%s`", id, topic) },
			GeneratePayloadType:       func(string) string { return "LONGBLOB" },
		}, wmsql.DefaultMySQLOffsetsAdapter{
			GenerateMessagesOffsetsTableName: func(topic string) string { return fmt.Sprintf("`o%s_%s`", id, topic) },
		})
	}
}

// overSQL lets subscribers alone make tables: a topic without a table is one that
// nobody takes.
func overSQL(db *sql.DB, schema wmsql.SchemaAdapter, offsets wmsql.OffsetsAdapter) wmadapter.Config {
	deadline := ackDeadline
	pub, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema}, nil)
	return wmadapter.Config{
		Name: "watermill-sql", Destination: "its own database",
		TopicName: wmadapter.Names("-.", 45),
		Publisher: failing{pub, err},
		Subscriber: func(group string) (message.Subscriber, error) {
			return wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
				ConsumerGroup: group, SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true,
				PollInterval: 250 * time.Millisecond, AckDeadline: &deadline,
			}, nil)
		},
		HoldsUp: true, Routing: true, Outcome: sqlOutcome, Check: db.PingContext,
	}
}

// failing is a Publisher, or why there is none.
type failing struct {
	message.Publisher

	err error
}

func (f failing) Publish(topic string, messages ...*message.Message) error {
	if f.err != nil {
		return f.err
	}
	return f.Publisher.Publish(topic, messages...)
}

// sqlOutcome knows the errors of both drivers for a table that is not there.
func sqlOutcome(err error) error {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg) && pg.Code == "42P01", errors.As(err, &my) && my.Number == 1146:
		return fmt.Errorf("%w: %w", transport.ErrUnroutable, err)
	case errors.As(err, &pg), errors.As(err, &my):
		return err
	}
	return fmt.Errorf("%w: %w", transport.ErrUnavailable, err)
}
