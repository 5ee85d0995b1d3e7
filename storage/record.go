package storage

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Box is one of the two tables.
type Box uint8

// The boxes.
const (
	Outbox Box = iota + 1 // table cap_published
	Inbox                 // table cap_received
)

func (b Box) String() string {
	switch b {
	case Outbox:
		return "published"
	case Inbox:
		return "received"
	}
	return fmt.Sprintf("Box(%d)", uint8(b))
}

// Status is the state of a row as stored. A failed row is final when it has an
// expiry, and will be tried again when it has none.
type Status int16

// The states.
const (
	Scheduled Status = iota // to be tried
	Delayed                 // to be tried, not before its due time; can be cancelled until then
	Succeeded               // final
	Failed                  // its last attempt failed; final or due again
)

func (s Status) String() string {
	switch s {
	case Scheduled:
		return "scheduled"
	case Delayed:
		return "delayed"
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("Status(%d)", int16(s))
}

// ID is the id of a row: a UUID, version 7 when made here.
type ID [16]byte

// String returns the canonical form, lower case with dashes.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ParseID reads the canonical form of a UUID, in either case.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, errors.New("not a UUID of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
	}
	if _, err := hex.Decode(id[:], []byte(s[0:8]+s[9:13]+s[14:18]+s[19:23]+s[24:36])); err != nil {
		return ID{}, fmt.Errorf("not a UUID: %w", err)
	}
	return id, nil
}

// Record is a row of either table. The fields of the second group are set by
// the storage when it reads.
type Record struct {
	ID      ID     // of an outbox row it is the message id
	GivenID bool   // outbox: the id came from the caller and may exist already
	Version string // Options.Version
	Topic   string // column name
	Owner   int64  // outbox: the member that will send it, 0: anyone
	Headers []byte // as the engine encoded them; never rewritten
	Body    []byte // as the codec made it; never rewritten
	// Delay and DueAt, outbox: not sent before. At most one is set; DueAt is an
	// instant, compared with the database's clock.
	Delay time.Duration
	DueAt time.Time
	// Inbox: what the row is for. Subscriber "" matched no subscription.
	Group, Subscriber, MessageID string
	// Key orders the rows that share it, see Member.Heads; at most 255 bytes, ""
	// for none. Not with Delay or DueAt.
	Key           string
	Fault         string // inbox: insert as final failed, for this reason
	FaultExpires  time.Duration
	FaultCallback bool // with Fault: the failed callback is owed

	Position  Position      // due time and seq, for Lane.After
	Status    Status        //
	Final     bool          // expires_at is set
	Retries   int           // attempts answered with a failure so far
	Takeovers int           // see Member.TakeOver and Member.Claim
	LastError string        //
	Age       time.Duration // since the row was added, by the database's clock
}

// OutcomeKind says how a row goes on.
type OutcomeKind uint8

// The outcomes. All but Release set takeovers to 0.
const (
	// Succeed: final. After: until it expires; negative: the row is deleted.
	Succeed OutcomeKind = iota + 1
	// Retry: status failed, due again After; nobody else takes it meanwhile.
	Retry
	// Postpone: status unchanged, due again After.
	Postpone
	// Fail: final failed. After: until it expires. Callback: due now, so that
	// the callback is made; otherwise nothing more is due.
	Fail
	// CallbackDone: the callback of a final failed row was made.
	CallbackDone
	// Release: the attempt did not take place. The row stays as it was. Claimed:
	// what Claim added to Takeovers is taken off, but 1 stays 1: the claim may
	// not have been written, and the death before it must not be forgotten.
	Release
)

// Outcome is how the work on a row in hand has ended. It may be stored twice, as
// nobody knows whether a write that failed has taken place: nothing is counted
// twice then.
type Outcome struct {
	ID       ID
	Kind     OutcomeKind
	Attempt  int           // Retry, Fail: the attempt that was answered, from 1; retries becomes this. 0: none
	After    time.Duration // from the database's now
	Callback bool          // Fail
	Claimed  bool          // Release
	Error    string        // Retry, Fail: cut to 4 KiB and cleaned by the storage; "" keeps the last one
}

func joinOr(s []string) string {
	if len(s) < 2 {
		return strings.Join(s, "")
	}
	return strings.Join(s[:len(s)-1], ", ") + " or " + s[len(s)-1]
}
