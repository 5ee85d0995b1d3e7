//go:build race

package sqlite_test

// retained is the number of final rows that a test keeps in a table: fewer
// where the race detector makes SQLite slow.
const retained = 3_000
