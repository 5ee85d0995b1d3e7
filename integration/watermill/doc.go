// Package watermill holds the tests of transport/wmadapter with the modules of
// Watermill that talk to a broker or a database. It is a module of its own, so that
// who uses wmadapter need not download all their clients.
//
// What each test sets up is the smallest step around what stands in the way;
// docs/transports.md tells what that is.
package watermill
