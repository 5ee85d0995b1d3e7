package rabbitmq

import (
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Headers that the broker adds to dead letters.
const (
	headerDeaths      = "x-death"
	headerFirstDeath  = "x-first-death-"
	headerLastDeath   = "x-last-death-"
	headerDeliveries  = "x-delivery-count"
	deathByRejection  = "rejected"
	headerParkPrefix  = "cap-parked-"
	headerParkReason  = "cap-parked-reason"
	headerParkQueue   = "cap-parked-queue"
	headerParkAttempt = "cap-parked-attempts"
)

// deaths are the entries of x-death, the latest first.
func deaths(h amqp091.Table) []amqp091.Table {
	list, _ := h[headerDeaths].([]any)
	var all []amqp091.Table
	for _, e := range list {
		if t, ok := e.(amqp091.Table); ok {
			all = append(all, t)
		}
	}
	return all
}

// failures is how often the message was rejected in this queue; what happened to
// it in queues of others does not count.
func failures(h amqp091.Table, queue string) int {
	n := 0
	for _, d := range deaths(h) {
		if d["queue"] == queue && d["reason"] == deathByRejection {
			count, _ := d["count"].(int64)
			n += int(count)
		}
	}
	return n
}

// firstDeath is the routing key with which the message came to the queue where it
// died first. A repeated death moves its entry to the front, so the first queue
// is named by a header of its own.
func firstDeath(h amqp091.Table) (key string, ok bool) {
	all := deaths(h)
	if len(all) == 0 {
		return "", false
	}
	first := all[len(all)-1]
	for _, d := range slices.Backward(all) {
		if d["queue"] == h[headerFirstDeath+"queue"] && d["reason"] == h[headerFirstDeath+"reason"] {
			first = d
			break
		}
	}
	keys, _ := first["routing-keys"].([]any)
	if len(keys) == 0 {
		return "", false
	}
	key, ok = keys[0].(string)
	return key, ok
}

// withoutDeaths is a copy of the headers as the sender made them.
func withoutDeaths(h amqp091.Table) amqp091.Table {
	clean := make(amqp091.Table, len(h))
	for k, v := range h {
		if k == headerDeaths || k == headerDeliveries || strings.HasPrefix(k, headerFirstDeath) ||
			strings.HasPrefix(k, headerLastDeath) || strings.HasPrefix(k, headerParkPrefix) {
			continue
		}
		clean[k] = v
	}
	return clean
}
