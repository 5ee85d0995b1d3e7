//go:build capnofx

package main

import "log"

func main() { log.Fatal("this program is wired with fx: build it without the tag capnofx") }
