// Package testenv is what tests know about servers: the addresses of those that
// test.sh has made ready, and own nodes that a test may stop, restart and kill.
//
// An own node runs from installed server binaries, or in a container where there
// are none. It listens on a free port of 127.0.0.1, keeps its data in the test's
// folder, and is gone when the test ends, also when the test process is killed.
//
// The package speaks just enough of each protocol to tell whether a server
// answers. With the client libraries instead, every package whose tests need a
// server would pull in all of them, and test.sh would have to build them first.
package testenv
