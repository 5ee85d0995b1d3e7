package storage

import "time"

// MaxKeyBytes is the longest Record.Key: the width of the column.
const MaxKeyBytes = 255

// HeadQuery says which keys Heads looks at: those in Keys, or all in the order
// of their bytes, a page at a time.
type HeadQuery struct {
	// Group and Subscriber are the lane: empty in the outbox, a subscription in
	// the inbox.
	Group, Subscriber string
	// Keys, when set, asks for just these; After and Limit are ignored.
	Keys []string
	// After is the key behind which the page starts, "" for the first page; Limit
	// is the most keys in it, at least 1. Fewer than Limit heads: it was the last.
	// A page costs a step in an index for each key, however many rows a key has.
	After string
	Limit int
}

// Head is the first unfinished row of a key. To work on it, load it: by
// Due(IDs) when the asking member owns it, by TakeOver(IDs) when nobody who
// lives does.
type Head struct {
	Key    string
	ID     ID
	Owner  int64         // 0: nobody
	Living bool          // the owner has a heartbeat that has not ended
	DueIn  time.Duration // until it is due; 0 or less: it is
	Bytes  int           // of headers and body
}
