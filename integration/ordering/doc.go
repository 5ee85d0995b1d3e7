// Package ordering checks the promise of cap.WithKey and subscribe.Ordered with
// real databases: processes that publish, handle, fail, are killed, join and
// leave, and no inversion of a key. Its test runs small in CI; run.sh runs it
// large, and prints a report.
package ordering
