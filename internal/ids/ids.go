// Package ids makes UUIDs of version 7 and random owner numbers.
package ids

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// New returns a UUIDv7 (RFC 9562): milliseconds of Unix time, then 74 random
// bits. It never waits and does not fail: a clock that steps back makes ids
// that sort earlier, not ids that collide.
func New() [16]byte {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16)
	rand.Read(id[6:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Number returns a positive random number of 62 bits.
func Number() int64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if n := int64(binary.BigEndian.Uint64(b[:]) >> 2); n > 0 {
			return n
		}
	}
}
