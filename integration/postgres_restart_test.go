package integration

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capbus/gocap/internal/testenv"
)

func TestPostgresRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	restarted(t, server, postgresStore(t, server.DSN, 0), func() { answers(t, server.DSN) }, 2*time.Second)
}

// answers waits until an independent client has an answer.
func answers(t *testing.T, dsn string) {
	t.Helper()
	for {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_, err = conn.Exec(t.Context(), `SELECT 1`)
			must(t, conn.Close(t.Context()))
		}
		if err == nil || t.Context().Err() != nil {
			must(t, err)
			return
		}
	}
}
