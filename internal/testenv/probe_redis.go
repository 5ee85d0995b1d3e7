package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// probeRedis logs in, opens the database, and runs a script.
func probeRedis(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" {
		return errors.New("the address must be a URL, such as " + redis().Default)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "6379")
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	commands := [][]string{{"PING"}, {"EVAL", "return 1", "0"}}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		commands = append([][]string{{"SELECT", db}}, commands...)
	}
	if password, has := u.User.Password(); has {
		login := []string{"AUTH", password}
		if name := u.User.Username(); name != "" {
			login = []string{"AUTH", name, password}
		}
		commands = append([][]string{login}, commands...)
	}
	answers := bufio.NewReader(io.LimitReader(conn, maxMessage)) // some other server may be listening
	for _, c := range commands {
		if err := redisCommand(conn, answers, c); err != nil {
			return err
		}
	}
	return nil
}

// redisCommand speaks the protocol of https://redis.io/docs/latest/develop/reference/protocol-spec/
func redisCommand(conn io.Writer, answers *bufio.Reader, command []string) error {
	text := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	line, err := answers.ReadString('\n')
	if err != nil {
		return err
	}
	switch line = strings.TrimSpace(line); line {
	case "+OK", "+PONG", ":1":
		return nil
	}
	if refused, ok := strings.CutPrefix(line, "-"); ok {
		return errors.New(refused)
	}
	return errors.New("some other protocol")
}
