package gormstore

import "github.com/capbus/gocap/storage"

var _ storage.TxLimiter = (*Store)(nil)

// MaxTx implements storage.TxLimiter: SQLite has one writer.
func (s *Store) MaxTx() int { return 1 }
