package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// probeRabbitMQ logs in and opens the virtual host.
func probeRabbitMQ(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "amqp" {
		return errors.New("the address must be a URL, such as " + rabbitMQ().Default)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "5672")
	}
	vhost := strings.TrimPrefix(u.Path, "/")
	if vhost == "" {
		vhost = "/"
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	user, password := u.User.Username(), ""
	if u.User != nil {
		password, _ = u.User.Password()
	}
	err = amqpConn{conn}.login(user, password, vhost)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it does not take the account, or speaks some other protocol: %w", err)
	}
	return err
}

// An amqpConn speaks AMQP 0-9-1: https://www.rabbitmq.com/amqp-0-9-1-reference
type amqpConn struct{ conn net.Conn }

// Methods of the class connection.
const (
	amqpStart   = 10
	amqpStartOK = 11
	amqpTune    = 30
	amqpTuneOK  = 31
	amqpOpen    = 40
	amqpOpenOK  = 41
	amqpClose   = 50
)

func (c amqpConn) login(user, password, vhost string) error {
	if _, err := c.conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	if _, err := c.expect(amqpStart); err != nil {
		return err
	}
	// With this capability, a refusal has a reason.
	capability := "\x1cauthentication_failure_closet\x01"
	table := "\x0ccapabilitiesF" + amqpLong(capability)
	ok := amqpLong(table) + "\x05PLAIN" + amqpLong("\x00"+user+"\x00"+password) + "\x05en_US"
	if err := c.send(amqpStartOK, ok); err != nil {
		return err
	}
	tune, err := c.expect(amqpTune)
	if err != nil {
		return err
	}
	if err := c.send(amqpTuneOK, string(tune.take(8))); err != nil {
		return err
	}
	length := []byte{byte(min(len(vhost), 255))} // the server refuses a longer name
	if err := c.send(amqpOpen, string(length)+vhost+"\x00\x00"); err != nil {
		return err
	}
	if _, err = c.expect(amqpOpenOK); err != nil {
		return err
	}
	// Reply code 200, no text, no method to blame. What the server says to it is
	// not waited for.
	return c.send(amqpClose, "\x00\xc8\x00\x00\x00\x00\x00")
}

func amqpLong(s string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s //nolint:gosec // short
}

// send sends a method of the class connection (10) on channel 0.
func (c amqpConn) send(method byte, arguments string) error {
	_, err := c.conn.Write([]byte("\x01\x00\x00" + amqpLong("\x00\x0a\x00"+string([]byte{method})+arguments) + "\xce"))
	return err
}

func (c amqpConn) expect(method byte) (reader, error) {
	head, err := readN(c.conn, 7)
	if err != nil {
		return nil, err
	}
	if head[0] != 1 {
		return nil, errors.New("some other protocol")
	}
	frame, err := readN(c.conn, int(binary.BigEndian.Uint32(head[3:]))+1)
	if err != nil {
		return nil, err
	}
	body := reader(frame)
	got := body.take(4)
	switch {
	case len(got) == 4 && got[1] == 10 && got[3] == method:
		return body, nil
	case len(got) == 4 && got[1] == 10 && got[3] == amqpClose:
		body.take(2) // the code, which the text has too
		return nil, errors.New(string(body.take(int(body.byte()))))
	default:
		return nil, errors.New("some other protocol")
	}
}
