package testenv

import (
	"context"
	"crypto/sha1" //nolint:gosec // the protocol's
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
)

// probeMySQL logs in and asks for the rights.
func probeMySQL(ctx context.Context, dsn string) error {
	user, password, network, addr, err := splitMySQL(dsn)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	c := &mysqlConn{conn: conn}
	version, err := c.login(user, password)
	if err != nil {
		return err
	}
	if !mysqlNewEnough(version) {
		return fmt.Errorf("its version %s is older than MariaDB 10.6 or MySQL 8.0", version)
	}
	answer, err := c.query(`SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN ` +
		`('CREATE', 'DROP', 'CREATE USER') AND GRANTEE = CONCAT("'", REPLACE(CURRENT_USER(), "@", "'@'"), "'")`)
	if err != nil {
		return err
	}
	if answer != "3" {
		return errors.New("the account must be allowed to create and drop databases, and to create users")
	}
	return nil
}

// splitMySQL takes an address of go-sql-driver/mysql apart. The @ that counts is
// the last one before the last slash.
func splitMySQL(dsn string) (user, password, network, addr string, err error) {
	slash := strings.LastIndex(dsn, "/")
	at := strings.LastIndex(dsn[:max(slash, 0)], "@")
	network, addr, ok := strings.Cut(dsn[at+1:max(slash, 0)], "(")
	if slash < 0 || at < 0 || !ok || !strings.HasSuffix(addr, ")") {
		return "", "", "", "", errors.New("the address must look like " + mariaDB().Default)
	}
	user, password, _ = strings.Cut(dsn[:at], ":")
	return user, password, network, strings.TrimSuffix(addr, ")"), nil
}

// MariaDB puts a "5.5.5-" before its version in some releases.
func mysqlNewEnough(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d", &major, &minor); err != nil {
		return false
	}
	if strings.Contains(version, "MariaDB") {
		return major > 10 || major == 10 && minor >= 6
	}
	return major >= 8
}

// A mysqlConn speaks the protocol of MySQL and MariaDB:
// https://mariadb.com/kb/en/clientserver-protocol/
type mysqlConn struct {
	conn net.Conn
	seq  byte
}

const mysqlNative = "mysql_native_password"

func (c *mysqlConn) login(user, password string) (version string, err error) {
	hello, err := c.receive()
	if err != nil {
		return "", err
	}
	if protocol := hello.byte(); protocol != 10 {
		return "", errors.New("some other protocol")
	}
	version = hello.text()
	hello.take(4) // id of the connection
	scramble := append([]byte(nil), hello.take(8)...)
	hello.take(1 + 2 + 1 + 2 + 2 + 1 + 10)
	scramble = append(scramble, hello.take(12)...)

	const protocol41, secureConnection, pluginAuth = 1 << 9, 1 << 15, 1 << 19
	login := binary.LittleEndian.AppendUint32(nil, protocol41|secureConnection|pluginAuth)
	login = binary.LittleEndian.AppendUint32(login, maxMessage)
	login = append(login, 45) // utf8mb4
	login = append(login, make([]byte, 23)...)
	login = append(login, user+"\x00"...)
	proof := nativeProof(password, scramble)
	login = append(append(login, byte(len(proof))), proof...) //nolint:gosec // 20 at most
	login = append(login, mysqlNative+"\x00"...)
	if err := c.send(login); err != nil {
		return "", err
	}
	answer, err := c.receive()
	if err != nil {
		return "", err
	}
	const other = 0xfe
	if answer.byte() == other {
		return version, c.again(password, answer)
	}
	return version, nil
}

// again answers a server that wants another way to log in, or a new scramble.
func (c *mysqlConn) again(password string, request reader) error {
	plugin := request.text()
	var proof []byte
	switch {
	case plugin == mysqlNative:
		proof = nativeProof(password, request.take(20))
	case password != "":
		return fmt.Errorf("it asks for %s with a password, which is not known here; take an account with %s", plugin, mysqlNative)
	}
	if err := c.send(proof); err != nil {
		return err
	}
	_, err := c.receive()
	return err
}

func nativeProof(password string, scramble []byte) []byte {
	if password == "" {
		return nil
	}
	once := sha1.Sum([]byte(password))                                      //nolint:gosec // the protocol's
	twice := sha1.Sum(once[:])                                              //nolint:gosec // the protocol's
	mask := sha1.Sum(append(append([]byte(nil), scramble...), twice[:]...)) //nolint:gosec // the protocol's
	for i := range mask {
		mask[i] ^= once[i]
	}
	return mask[:]
}

// query returns the only column of the only row.
func (c *mysqlConn) query(sql string) (string, error) {
	c.seq = 0
	if err := c.send(append([]byte{3}, sql...)); err != nil {
		return "", err
	}
	// The number of columns, the column, the end of the columns, the row.
	var row reader
	for range 4 {
		var err error
		if row, err = c.receive(); err != nil {
			return "", err
		}
	}
	return string(row.take(int(row.byte()))), nil
}

func (c *mysqlConn) send(body []byte) error {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(body))) //nolint:gosec // short
	head[3] = c.seq
	c.seq++
	_, err := c.conn.Write(append(head, body...))
	return err
}

func (c *mysqlConn) receive() (reader, error) {
	head, err := readN(c.conn, 4)
	if err != nil {
		return nil, err
	}
	c.seq = head[3] + 1
	head[3] = 0
	body, err := readN(c.conn, int(binary.LittleEndian.Uint32(head)))
	if err != nil {
		return nil, err
	}
	if len(body) > 3 && body[0] == 0xff {
		text := body[3:]
		if len(text) > 6 && text[0] == '#' {
			text = text[6:] // without the SQLSTATE
		}
		return nil, errors.New(string(text))
	}
	return body, nil
}
