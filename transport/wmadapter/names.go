package wmadapter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// hashBytes is how many bytes of a hash stand for the rest of a long name: 128
// bits.
const hashBytes = 16

// Names returns a Config.TopicName for brokers that take few characters or short
// names: letters, digits and what is in allowed stay as they are, every other byte
// becomes "_" and its value in two hexadecimal digits, so does "_" itself, and a
// dot at an end or beside another one. A name of more than most bytes is cut, and
// "__" and a hash stand for the rest. Different topics get different names. It
// panics if most is less than 40, too little for a hash.
//
//	watermill-sql:   Names("-.", 45)  // with "watermill_offsets_" 63 bytes, as PostgreSQL takes
//	watermill-kafka: Names("-.", 249)
//	watermill-nats:  Names("-.", 200)
func Names(allowed string, most int) func(topic string) string {
	if most < 2*hashBytes+8 {
		panic(fmt.Sprintf("wmadapter: Names: at most %d bytes are too few for a hash; give 40 or more", most))
	}
	return func(topic string) string {
		name := escape(topic, allowed)
		if len(name) <= most {
			return name
		}
		sum := sha256.Sum256([]byte(topic))
		return name[:most-2*hashBytes-2] + "__" + hex.EncodeToString(sum[:hashBytes])
	}
}

func escape(topic, allowed string) string {
	var b strings.Builder
	for i := range len(topic) {
		c := topic[i]
		if plain(c, allowed) && (c != '.' || insideDot(topic, i)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

func plain(c byte, allowed string) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	return letter || c != '_' && strings.IndexByte(allowed, c) >= 0
}

// insideDot: an empty word is no word to most brokers.
func insideDot(topic string, i int) bool {
	return i > 0 && i < len(topic)-1 && topic[i-1] != '.' && topic[i+1] != '.'
}
