package testenv

import (
	"bufio"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

func TestProbesRefuseWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	addr := loopback(FreePort(t))
	for _, k := range []Kind{postgres(), mariaDB(), rabbitMQ(), redis(), nats()} {
		if err := k.Probe(t.Context(), k.dsn(addr)); err == nil {
			t.Errorf("%s: nothing listens, and it answers", k.Name)
		}
	}
}

func TestProbesRefuseOtherServers(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{postgres(), mariaDB(), rabbitMQ(), redis(), nats()} {
		if err := k.Probe(t.Context(), k.dsn(greeter(t))); err == nil {
			t.Errorf("%s: a server of mail answers as it", k.Name)
		}
	}
}

// greeter listens, greets whoever comes, and hangs up.
func greeter(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example ESMTP ready, and pleased to meet you\r\n"))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestProbesRefuseBrokenAddresses(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{postgres(), mariaDB(), rabbitMQ(), redis(), nats()} {
		for _, address := range []string{"", "x", "/", "@/", "host=a user=b", "http://127.0.0.1/"} {
			if err := k.Probe(t.Context(), address); err == nil {
				t.Errorf("%s answers at %q", k.Name, address)
			}
		}
	}
}

func TestProbesNeedTheAccount(t *testing.T) {
	t.Parallel()
	for k, refused := range map[string]string{
		"MariaDB":  strings.Replace(MySQL(), "root", "nobody:wrong", 1),
		"RabbitMQ": strings.Replace(RabbitMQ(), "guest:guest", "nobody:wrong", 1),
	} {
		for _, kind := range Kinds() {
			if kind.Name != k {
				continue
			}
			if err := kind.Probe(t.Context(), refused); err == nil {
				t.Errorf("%s takes anybody", k)
			}
		}
	}
}

// Logs in with a password in each of the ways that PostgreSQL knows, and without
// the rights.
func TestProbePostgresPasswords(t *testing.T) {
	t.Parallel()
	k := postgres()
	if _, err := k.Binaries(); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"scram-sha-256", "md5", "password"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := StartPostgres(t)
			encryption := "scram-sha-256"
			if method == "md5" {
				encryption = "md5"
			}
			c := connectPostgres(t, s.DSN)
			for _, sql := range []string{
				"SET password_encryption = '" + encryption + "'",
				"CREATE ROLE admin LOGIN CREATEDB CREATEROLE PASSWORD 'pw,='",
				"CREATE ROLE clerk LOGIN PASSWORD 'pw,='",
				`COPY (SELECT 'host all postgres all trust' UNION ALL SELECT 'host all all all ` + method +
					`') TO PROGRAM 'cat > pg_hba.conf'`,
				"SELECT pg_reload_conf()",
			} {
				_, err := c.query(sql)
				check(t, err)
			}
			u, err := url.Parse(s.DSN)
			check(t, err)
			u.User = url.UserPassword("admin", "pw,=")
			check(t, k.Probe(t.Context(), u.String()))
			u.User = url.UserPassword("admin", "wrong")
			if err := k.Probe(t.Context(), u.String()); err == nil {
				t.Error("a wrong password is good enough")
			}
			u.User = url.UserPassword("clerk", "pw,=")
			if err := k.Probe(t.Context(), u.String()); err == nil {
				t.Error("an account without rights is good enough")
			}
		})
	}
}

func connectPostgres(t *testing.T, dsn string) *pgConn {
	t.Helper()
	u, err := url.Parse(dsn)
	check(t, err)
	conn, err := dial(t.Context(), "tcp", u.Host)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &pgConn{conn: conn, user: u.User.Username()}
	check(t, c.login("postgres"))
	return c
}

func TestProbeMySQLPasswords(t *testing.T) {
	t.Parallel()
	s := StartMariaDB(t)
	conn, err := dial(t.Context(), "tcp", s.Addr)
	check(t, err)
	defer func() { _ = conn.Close() }()
	c := &mysqlConn{conn: conn}
	_, err = c.login("root", "")
	check(t, err)
	for _, sql := range []string{
		"CREATE USER admin IDENTIFIED BY 'pw:@/'",
		"GRANT ALL ON *.* TO admin",
		"CREATE USER clerk IDENTIFIED BY 'pw:@/'",
	} {
		check(t, c.exec(sql))
	}
	k := mariaDB()
	check(t, k.Probe(t.Context(), "admin:pw:@/@tcp("+s.Addr+")/"))
	for _, login := range []string{"admin:wrong", "admin", "clerk:pw:@/"} {
		if err := k.Probe(t.Context(), login+"@tcp("+s.Addr+")/"); err == nil {
			t.Errorf("%s is good enough", login)
		}
	}
}

func TestProbeNATSPasswords(t *testing.T) {
	t.Parallel()
	s := StartNATS(t, `authorization { users: [{user: admin, password: "pw,="}, {user: guest, password: guest}] }`,
		"no_auth_user: guest")
	k := nats()
	check(t, k.Probe(t.Context(), "nats://admin:pw,=@"+s.Addr))
	for _, login := range []string{"admin:wrong", "nobody"} {
		if err := k.Probe(t.Context(), "nats://"+login+"@"+s.Addr); err == nil || !strings.Contains(err.Error(), "Authorization") {
			t.Errorf("%s: %v", login, err)
		}
	}
}

// exec runs a statement that returns no rows.
func (c *mysqlConn) exec(sql string) error {
	c.seq = 0
	if err := c.send(append([]byte{3}, sql...)); err != nil {
		return err
	}
	_, err := c.receive()
	return err
}

func TestProbeRedisPasswords(t *testing.T) {
	t.Parallel()
	s := StartRedis(t)
	conn, err := dial(t.Context(), "tcp", s.Addr)
	check(t, err)
	defer func() { _ = conn.Close() }()
	check(t, redisCommand(conn, bufio.NewReader(conn), []string{"CONFIG", "SET", "requirepass", "pw"}))
	for login, good := range map[string]bool{":pw@": true, "default:pw@": true, "": false, ":wrong@": false, "nobody:pw@": false} {
		err := redis().Probe(t.Context(), "redis://"+login+s.Addr+"/1")
		if (err == nil) != good {
			t.Errorf("login %q: %v", login, err)
		}
	}
	if err := redis().Probe(t.Context(), "redis://:pw@"+s.Addr+"/no"); err == nil {
		t.Error("there is no database no, and it answers")
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, k := range Kinds() {
		t.Setenv(k.BinFolder, t.TempDir())
		_, err := k.Binaries()
		if err == nil || !strings.Contains(err.Error(), k.programs[0].name) || !strings.Contains(err.Error(), k.BinFolder) {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if _, err := exec.LookPath("docker"); err == nil {
		t.Error("docker is in an empty PATH")
	}
	if err := ComposeAnswers(); err == nil {
		t.Error("docker compose works without docker")
	}
}

func TestScramRefusesABrokenChallenge(t *testing.T) {
	t.Parallel()
	s := newScram("secret")
	for _, challenge := range []string{"", "r=other,s=,i=1", "r=" + s.nonce + ",s=,i=0", "r=" + s.nonce + ",s=!,i=1"} {
		if _, err := s.final(challenge); err == nil {
			t.Errorf("%q is taken", challenge)
		}
	}
}
