package sqlqueue_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/capbus/gocap/transport/sqlqueue"
)

func ExampleNew() {
	tr := sqlqueue.New(sqlqueue.Config{DSN: "postgres://shop@db/shop", Schema: "cap", MaxAge: 30 * 24 * time.Hour})
	defer func() { _ = tr.Close() }() // after the bus has stopped
	fmt.Println(tr.Validate(), tr)
	fmt.Println(tr.ForVersion("v2").Traits().Destination)
	// Output:
	// <nil> sqlqueue db:5432 shop "cap"."cap_queue" v1
	// db:5432 shop "cap"."cap_queue" v2
}

// Somebody else makes the tables, and the service gets the rights on them.
func ExampleSetupSQL() {
	script := sqlqueue.SetupSQL(sqlqueue.Config{Schema: "cap"})
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "CREATE TABLE") {
			fmt.Print(line)
		}
	}
	// Output:
	// CREATE TABLE "cap"."cap_queue_messages" (
	// CREATE TABLE "cap"."cap_queue_groups" (
	// CREATE TABLE "cap"."cap_queue_bindings" (
	// CREATE TABLE "cap"."cap_queue_receivers" (
	// CREATE TABLE "cap"."cap_queue_deliveries" (
	// CREATE TABLE "cap"."cap_queue_state" (generation bigint NOT NULL);
}
