// Package integration holds tests across adapters: real databases, child
// processes that are killed, and the figures that need both.
package integration
