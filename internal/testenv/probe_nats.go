package testenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// probeNATS logs in and finds out whether there is JetStream:
// https://docs.nats.io/reference/reference-protocols/nats-protocol
func probeNATS(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "nats" || u.Host == "" {
		return errors.New("the address must be a URL, such as " + nats().Default)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "4222")
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(io.LimitReader(conn, maxMessage))
	line, err := in.ReadString('\n')
	info, ok := strings.CutPrefix(line, "INFO ")
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("some other protocol")
	}
	var server struct{ JetStream bool }
	if err := json.Unmarshal([]byte(info), &server); err != nil {
		return fmt.Errorf("some other protocol: %w", err)
	}
	if !server.JetStream {
		return errors.New("it runs without JetStream; start it with -js")
	}
	login := map[string]any{"verbose": false, "user": u.User.Username()}
	if password, has := u.User.Password(); has {
		login["pass"] = password
	}
	text, err := json.Marshal(login)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nPING\r\n", text); err != nil {
		return err
	}
	if line, err = in.ReadString('\n'); err != nil {
		return err
	}
	if strings.TrimSpace(line) != "PONG" {
		return errors.New(strings.TrimSpace(line))
	}
	return nil
}
