package sqlqueue

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capbus/gocap/transport"
)

var (
	errClosed = fmt.Errorf("sqlqueue: the transport is closed: %w", transport.ErrUnavailable)
	// errNotInHand answers an Ack or Nack that came too late.
	errNotInHand = errors.New("sqlqueue: the delivery was given back: its receiver had ended or was lost")
	errLeaseLost = fmt.Errorf("sqlqueue: the receiver could not renew its lease in time, others may have its messages: %w", transport.ErrUnavailable)
	errNoAnswer  = fmt.Errorf("sqlqueue: the database did not answer within Config.RequestTimeout: %w", transport.ErrUnavailable)
	errUnsettled = fmt.Errorf("sqlqueue: groups and topics are changing all the time: %w", transport.ErrUnavailable)
	errNoTables  = errors.New("the tables are not there, and Config.SkipSetup is set; see SetupSQL")
	errDSN       = errors.New("the DSN is not an address; see Validate")
)

func errUnroutable(topic string) error {
	return fmt.Errorf("sqlqueue: topic %q: %w", topic, transport.ErrUnroutable)
}

// refused is an answer that the same message would get for ever.
func refused(err error) error {
	return fmt.Errorf("sqlqueue: %w: %w: %w", transport.ErrRejected, transport.ErrPermanent, err)
}

// unavailable is for what a later call may find well again.
func unavailable(err error) error {
	if errors.Is(err, transport.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("sqlqueue: %w: %w", transport.ErrUnavailable, err)
}

const undefinedTable = "42P01"

// sqlState is the server's code, or empty when the error is none of its answers.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// lasting keeps errors that somebody has to do something about as they are: a
// wrong password, a database, schema or right that is missing. All others may pass
// by themselves; tables that are gone are made again.
func lasting(err error) error {
	if err == nil {
		return nil
	}
	if s := sqlState(err); s != "" && s != undefinedTable {
		switch s[:2] {
		case "28", "3D", "3F", "42", "0A":
			return fmt.Errorf("sqlqueue: %w", err)
		}
	}
	if errors.Is(err, errDSN) || errors.Is(err, errEncoding) || errors.Is(err, errNoTables) {
		return fmt.Errorf("sqlqueue: %w", err)
	}
	return unavailable(err)
}

// ofTheData reports whether the server refused what it was given, so that other
// messages may do better. A setting of the connection that it refuses has the same
// codes.
func ofTheData(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return false
	}
	s := sqlState(err)
	return len(s) == 5 && (s[:2] == "22" || s[:2] == "23" || s[:2] == "54")
}

// brokenConnector is that of a DSN which cannot be read.
type brokenConnector struct{}

func (brokenConnector) Connect(context.Context) (driver.Conn, error) { return nil, errDSN }
func (brokenConnector) Driver() driver.Driver                        { return nil }
