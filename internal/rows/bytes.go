package rows

import "github.com/capbus/gocap/storage"

const (
	// MaxLookBytes bounds the headers and bodies that one look reads.
	MaxLookBytes = 8 << 20
	// MaxHandBytes bounds those in hand, of the outbox and of each group of the
	// inbox, beyond which no more is looked for or received; what one look or one
	// delivery brings comes on top.
	MaxHandBytes = 64 << 20
)

// Size is what a row takes of them.
func Size(rec *storage.Record) int64 { return int64(len(rec.Headers) + len(rec.Body)) }
