package testenv

import (
	"context"
	"crypto/md5" //nolint:gosec // the protocol's
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// probePostgres logs in and asks for the version and the rights.
func probePostgres(ctx context.Context, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return errors.New("the address must be a URL, such as " + postgres().Default)
	}
	if u.Query().Get("sslmode") != "disable" {
		return errors.New("the address must have sslmode=disable: tests do not use TLS")
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "5432")
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	password, _ := u.User.Password()
	c := &pgConn{conn: conn, user: u.User.Username(), password: password}
	if err := c.login(strings.TrimPrefix(u.Path, "/")); err != nil {
		return err
	}
	answer, err := c.query("SELECT current_setting('server_version_num')::int >= 130000 AND " +
		"(SELECT rolsuper OR rolcreatedb AND rolcreaterole FROM pg_roles WHERE rolname = current_user)")
	if err != nil {
		return err
	}
	if answer != "t" {
		return errors.New("it must be PostgreSQL 13 or newer, and the account must be allowed to create databases and roles")
	}
	return nil
}

// A pgConn speaks PostgreSQL's protocol 3.0:
// https://www.postgresql.org/docs/current/protocol-message-formats.html
type pgConn struct {
	conn     net.Conn
	user     string
	password string
	scram    *scram
}

func (c *pgConn) login(database string) error {
	if database == "" {
		database = c.user
	}
	start := fmt.Sprintf("\x00\x03\x00\x00user\x00%s\x00database\x00%s\x00\x00", c.user, database)
	if err := c.send("", []byte(start)); err != nil {
		return err
	}
	for {
		kind, body, err := c.receive()
		if err != nil {
			return err
		}
		switch kind {
		case 'R':
			if err := c.authenticate(body); err != nil {
				return err
			}
		case 'Z':
			return nil
		}
	}
}

func (c *pgConn) authenticate(body reader) error {
	const ok, plain, hashed, sasl, saslContinue, saslFinal = 0, 3, 5, 10, 11, 12
	if len(body) < 4 {
		return errors.New("a broken message; some other protocol")
	}
	switch method := binary.BigEndian.Uint32(body.take(4)); method {
	case ok, saslFinal:
		return nil
	case plain:
		return c.send("p", []byte(c.password+"\x00"))
	case hashed:
		inner := md5Hex([]byte(c.password + c.user))
		return c.send("p", []byte("md5"+md5Hex(append([]byte(inner), body.take(4)...))+"\x00"))
	case sasl:
		c.scram = newScram(c.password)
		first := c.scram.first()
		message := binary.BigEndian.AppendUint32([]byte(scramName+"\x00"), uint32(len(first))) //nolint:gosec // short
		return c.send("p", append(message, first...))
	case saslContinue:
		final, err := c.scram.final(string(body))
		if err != nil {
			return err
		}
		return c.send("p", []byte(final))
	default:
		return fmt.Errorf("it asks for authentication method %d, which is not known here", method)
	}
}

func md5Hex(b []byte) string {
	sum := md5.Sum(b) //nolint:gosec // the protocol's
	return hex.EncodeToString(sum[:])
}

// query returns the first column of the last row.
func (c *pgConn) query(sql string) (string, error) {
	if err := c.send("Q", []byte(sql+"\x00")); err != nil {
		return "", err
	}
	var answer string
	for {
		kind, body, err := c.receive()
		if err != nil {
			return "", err
		}
		switch kind {
		case 'D':
			body.take(6) // the number of columns, the length of the first
			answer = string(body)
		case 'Z':
			return answer, nil
		}
	}
}

func (c *pgConn) send(kind string, body []byte) error {
	message := binary.BigEndian.AppendUint32([]byte(kind), uint32(len(body)+4)) //nolint:gosec // short
	_, err := c.conn.Write(append(message, body...))
	return err
}

func (c *pgConn) receive() (byte, reader, error) {
	head, err := readN(c.conn, 5)
	if err != nil {
		return 0, nil, err
	}
	body, err := readN(c.conn, int(binary.BigEndian.Uint32(head[1:]))-4)
	if err != nil {
		return 0, nil, err
	}
	if head[0] == 'E' {
		return 0, nil, errors.New(pgMessage(body))
	}
	return head[0], body, nil
}

// pgMessage is the field M of an error.
func pgMessage(body reader) string {
	for {
		field := body.byte()
		if field == 0 {
			return "an error without a message"
		}
		if value := body.text(); field == 'M' {
			return value
		}
	}
}
