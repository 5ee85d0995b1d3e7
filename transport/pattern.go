package transport

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Match reports whether a topic matches a pattern. Both are words separated by
// dots; in a pattern the word * stands for exactly one word and # for none or
// more, as in AMQP. Everything else is literal and compared as bytes. The
// meaning is the same on every transport.
func Match(pattern, topic string) bool {
	if !IsPattern(pattern) {
		return pattern == topic
	}
	return matchWords(strings.Split(pattern, "."), strings.Split(topic, "."))
}

// matchWords walks both lists once, and goes back to the last # on a mismatch:
// linear in memory, at most quadratic in time whatever the pattern.
func matchWords(pattern, topic []string) bool {
	p, t := 0, 0
	hash, resume := -1, 0
	for t < len(topic) {
		switch {
		case p < len(pattern) && pattern[p] == "#":
			hash, resume = p, t
			p++
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == topic[t]):
			p++
			t++
		case hash >= 0:
			resume++
			p, t = hash+1, resume
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "#" {
		p++
	}
	return p == len(pattern)
}

// IsPattern reports whether a topic to subscribe to has a wildcard word.
func IsPattern(topic string) bool {
	for word := range strings.SplitSeq(topic, ".") {
		if word == "*" || word == "#" {
			return true
		}
	}
	return false
}

// CheckTopic returns why a topic cannot be published to, or nil: it must be 1
// to 255 bytes of valid UTF-8 without NUL and without wildcard words.
func CheckTopic(topic string) error {
	if err := CheckPattern(topic); err != nil {
		return err
	}
	if IsPattern(topic) {
		return fmt.Errorf("topic %q has a wildcard; only subscriptions may have one", topic)
	}
	return nil
}

// CheckPattern is as CheckTopic, but allows wildcard words.
func CheckPattern(topic string) error {
	switch {
	case topic == "":
		return errors.New("topic is empty; give one, such as \"product.deleted\"")
	case len(topic) > MaxTopicBytes:
		return fmt.Errorf("topic has %d bytes, prefix included; at most %d are allowed", len(topic), MaxTopicBytes)
	case !utf8.ValidString(topic) || strings.ContainsRune(topic, 0):
		return fmt.Errorf("topic %q is not valid UTF-8 without NUL", topic)
	}
	return nil
}
