// Package tracking checks the trackers of package idempotency on real databases
// and Redis, within one process and by several on one key.
package tracking
