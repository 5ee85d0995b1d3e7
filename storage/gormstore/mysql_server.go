package gormstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// mysqlServer is what the dialect knows of the server.
type mysqlServer struct {
	version          string
	tellsTransaction bool // it is MariaDB: has @@in_transaction
	maxPacket        int
	autocommit       bool
	statementLog     bool // a binary log of statements, which READ COMMITTED cannot write to
}

// ask finds out about the server.
func (d *mysql) ask(ctx context.Context, db querier) error {
	s := &mysqlServer{}
	var binlog, format bool
	err := textOf("SHOW VARIABLES WHERE Variable_name IN"+
		" ('version', 'in_transaction', 'max_allowed_packet', 'autocommit', 'log_bin', 'binlog_format')").
		each(ctx, db, func(rows *sql.Rows) error {
			var name, value string
			if err := rows.Scan(&name, &value); err != nil {
				return err
			}
			var err error
			switch strings.ToLower(name) {
			case "version":
				s.version = value
			case "in_transaction":
				s.tellsTransaction = true
			case "max_allowed_packet":
				s.maxPacket, err = strconv.Atoi(value)
			case "autocommit":
				s.autocommit = value == "ON" || value == "1"
			case "log_bin":
				binlog = value == "ON" || value == "1"
			case "binlog_format":
				format = value == "STATEMENT"
			}
			return err
		})
	if err != nil {
		return fmt.Errorf("ask the server for its settings: %w", err)
	}
	s.statementLog = binlog && format
	if err := s.check(); err != nil {
		return err
	}
	d.server.Store(s)
	return nil
}

// leastPacket is the least max_allowed_packet that batches are laid out for.
const leastPacket = 1 << 20

func (s *mysqlServer) check() error {
	major, minor := versionOf(s.version)
	switch {
	case s.tellsTransaction && (major < 10 || major == 10 && minor < 6):
		return fmt.Errorf("the server is MariaDB %s; 10.6 or later is needed", s.version)
	case !s.tellsTransaction && major < 8:
		return fmt.Errorf("the server is MySQL %s; 8.0 or later is needed", s.version)
	case s.maxPacket < leastPacket:
		return fmt.Errorf("max_allowed_packet is %d; set it to at least %d, better to 64 MiB", s.maxPacket, leastPacket)
	}
	return nil
}

// versionOf reads the first two numbers of a version.
func versionOf(version string) (major, minor int) {
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // zeros if there are none
	return major, minor
}

// prepare refuses settings under which the store's own transactions would not
// work.
func (d *mysql) prepare(ctx context.Context, db rowQuerier) error {
	if err := d.ask(ctx, db); err != nil {
		return err
	}
	s := d.server.Load()
	switch {
	case !s.autocommit:
		return errors.New("autocommit is off, so that every look would leave a transaction open; " +
			"take autocommit=0 out of the DSN, or the server's configuration")
	case s.statementLog:
		return errors.New("binlog_format is STATEMENT, which takes no transactions with READ COMMITTED; set it to ROW or MIXED")
	}
	return nil
}

// unknownPacket is taken for max_allowed_packet where it could not be asked for:
// the least default of any server.
const unknownPacket = 4 << 20

// maxBytes: a value may take twice its size in the text of a statement, where
// the driver puts it there; the rest of the text is small.
func (d *mysql) maxBytes() int {
	packet := unknownPacket
	if s := d.server.Load(); s != nil {
		packet = s.maxPacket
	}
	return packet/2 - 64<<10
}

func (d *mysql) sizeHint() string {
	if s := d.server.Load(); s != nil {
		return fmt.Sprintf("its max_allowed_packet is %d, of which a message may take half; raise it in the server's configuration", s.maxPacket)
	}
	return fmt.Sprintf("its max_allowed_packet could not be asked for in this kind of transaction, and is taken for %d: call Check on the store before",
		unknownPacket)
}
