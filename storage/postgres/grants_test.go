package postgres_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/capbus/gocap/storage/postgres"
)

// grants are those that README tells of.
const grants = `GRANT USAGE ON SCHEMA app TO %role;
GRANT SELECT, INSERT, UPDATE, DELETE ON app.cap_published, app.cap_received, app.cap_instances, app.cap_lock TO %role;
GRANT SELECT ON app.cap_migrations TO %role`

// newRole makes a role that may do nothing in the database of the DSN, with the
// schema app; it returns the role and the DSN with which it logs in.
func newRole(t *testing.T, dsn string) (role, as string) {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	role = strings.TrimPrefix(u.Path, "/") + "_role"
	onServer(t, dsn, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`, `CREATE SCHEMA app`)
	t.Cleanup(func() { onServer(t, dsn, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u.User = url.UserPassword(role, "secret")
	return role, u.String()
}

// TestAUserWithoutRightsToMakeTables runs everything on tables that are there,
// and is told the step that is missing where they are not.
func TestAUserWithoutRightsToMakeTables(t *testing.T) {
	t.Parallel()
	dsn := newDatabase(t)
	role, as := newRole(t, dsn)
	cfg := postgres.Config{Schema: "app", GORM: quiet().GORM}
	s := open(t, as, cfg)
	refused := func(want string) {
		t.Helper()
		if err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused("schema app")
	onServer(t, dsn, `GRANT USAGE ON SCHEMA app TO `+role)
	refused("step 1, messages")
	admin := open(t, dsn, cfg)
	must(t, admin.Migrate(t.Context()))
	refused("cap_migrations")
	onServer(t, dsn, strings.ReplaceAll(grants, "%role", role))
	must(t, s.Migrate(t.Context()))
	must(t, s.Check(t.Context()))
	everything(t, s)
	must(t, admin.MigrateDown(t.Context(), 1))
	refused("step 2, lock")
	must(t, admin.Migrate(t.Context()))
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "cap_lock") {
		t.Errorf("check of a table without rights: %v", err)
	}
}
