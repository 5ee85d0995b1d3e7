// Package gocap is the root of a framework for reliable messages between
// services: a message is written into an outbox table in the caller's own
// transaction, sent after the commit, and handled from an inbox table.
//
// Applications import package cap; this package holds [Options], which cap
// aliases.
package gocap
