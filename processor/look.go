package processor

import (
	"context"
	"time"

	"github.com/capbus/gocap/internal/rows"
)

// lookTimeout bounds one reading of rows; a database that hangs must not hang
// the loop that reads.
const lookTimeout = 10 * time.Second

// lookContext is the context of one reading under a tenure.
func lookContext(ctx context.Context, t *rows.Tenure) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	stop := context.AfterFunc(t.Context(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
