package gormstore

import (
	"fmt"

	"github.com/capbus/gocap/storage"
)

// rowWeight is what a row adds to a statement beside its headers and body.
const rowWeight = 2 << 10

func weigh(r *storage.Record) int { return rowWeight + len(r.Headers) + len(r.Body) + len(r.Fault) }

// byWeight calls f with parts that fit into one statement each.
func (s *Store) byWeight(recs []*storage.Record, f func(part []*storage.Record) error) error {
	for len(recs) > 0 {
		n := s.together(recs)
		if err := f(recs[:n]); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// together is how many of the first records go into one statement; at least one.
func (s *Store) together(recs []*storage.Record) int {
	most, sum := s.d.maxBytes(), 0
	for i, r := range recs[:min(len(recs), rowsPer)] {
		if sum += weigh(r); most > 0 && sum > most && i > 0 {
			return i
		}
	}
	return min(len(recs), rowsPer)
}

// fits refuses a record that the server would not take, before SQL: the server
// might close the connection, and with it the caller's transaction.
func (s *Store) fits(recs []*storage.Record) error {
	for _, r := range recs {
		if most := s.d.maxBytes(); most > 0 && weigh(r) > most {
			return fmt.Errorf("message %s of %d bytes is larger than the server takes (%s)", r.ID, len(r.Headers)+len(r.Body), s.d.sizeHint())
		}
	}
	return nil
}

// withoutBody is a record that does not fit, without what makes it too large.
func (s *Store) withoutBody(r *storage.Record) storage.Record {
	bare := *r
	bare.Body = nil
	if s.fits([]*storage.Record{&bare}) != nil {
		bare.Headers = nil
	}
	bare.Fault = storage.CleanError(bare.Fault)
	return bare
}
