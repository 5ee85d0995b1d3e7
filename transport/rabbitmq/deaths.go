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

// firstKey is the routing key with which the message came to the queue when it
// first died there, or where it died first; empty if it never did. The entry of a
// queue keeps the first key, whatever comes later.
func firstKey(h amqp091.Table, queue string) string {
	all := deaths(h)
	if len(all) == 0 {
		return ""
	}
	first := all[len(all)-1]
	if i := slices.IndexFunc(all, func(d amqp091.Table) bool { return d["queue"] == queue }); i >= 0 {
		first = all[i]
	}
	keys, _ := first["routing-keys"].([]any)
	if len(keys) == 0 {
		return ""
	}
	key, _ := keys[0].(string)
	return key
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
