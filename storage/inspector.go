package storage

import (
	"context"
	"time"
)

// Inspector is optional on a Storage: it tells what waits in a box, for health
// checks. It only reads, and takes a few steps in the small indexes for each
// owner and lane, however many rows there are.
type Inspector interface {
	// Waiting tells of the unfinished rows of a version, an entry for each group
	// that has some; in the outbox that is one, without a name. Of rows with an
	// ordering key it may look at the first of each key alone, which the others
	// wait for, and only at those of some 100 keys of a lane.
	Waiting(ctx context.Context, b Box, version string, most int) ([]Waiting, error)

	// Versions tells of all versions that have unfinished rows in a box, in the
	// order of their names.
	Versions(ctx context.Context, b Box, most int) ([]VersionRows, error)
}

// Waiting is what waits in a group.
type Waiting struct {
	Group string
	// Overdue is how long the row has been due that has been for longest,
	// whether it is in work or not; 0: none is.
	Overdue time.Duration
	// Age is the time since that row was added. If none is due, it is that of the
	// row that will be due next, if that one has failed before; else 0.
	Age time.Duration
	// Unmatched rows match no subscription so far. They are counted up to the
	// number given.
	Unmatched int
}

// VersionRows is the unfinished rows of a version.
type VersionRows struct {
	Version string
	Rows    int  // counted up to the number given
	Living  bool // an instance of this box and version lives
}
