//go:build !race

package sqlite_test

const retained = 100_000
