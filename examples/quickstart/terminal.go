package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
)

// welcome says where everything is and what to try.
func welcome(url, file string, status monitor) {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	fmt.Printf("Listening on %s/\nDatabase: %s (delete it to begin anew)\n\n", url, file)
	if status.crash {
		fmt.Printf("-crash: nothing is sent, and the next change kills this process after its commit. Make one:\n\n"+
			"  curl -d '{\"name\":\"Tea\"}' %s/products\n\n", url)
		return
	}
	fmt.Printf(`Open that page and click, or try in a second terminal:

  curl -d '{"name":"Tea"}' %[1]s/products
  curl %[1]s/products
  curl -X DELETE %[1]s/products/%[2]d

What if the process dies after the commit, before the message is sent? Stop it (Ctrl-C) and see:

  %[3]s -crash

`, url, status.nextProduct(), command())
}

// command is how to start this program again, without -crash.
func command() string {
	var b strings.Builder
	b.WriteString("go run ./examples/quickstart")
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "crash" {
			fmt.Fprintf(&b, " -%s %q", f.Name, f.Value)
		}
	})
	return b.String()
}
