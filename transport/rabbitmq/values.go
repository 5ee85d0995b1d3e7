package rabbitmq

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// headerStrings turns header values of every AMQP type into text; nothing is
// left out.
func headerStrings(t amqp091.Table) map[string]string {
	h := make(map[string]string, len(t))
	for k, v := range t {
		h[validText(k)] = text(v)
	}
	return h
}

// text writes a value as .NET CAP would read it: byte arrays are UTF-8, void is
// empty. Tables and arrays are JSON, times RFC 3339 in UTC.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return validText(v)
	case []byte:
		return validText(string(v))
	case bool:
		return strconv.FormatBool(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp091.Decimal:
		return decimal(v)
	case amqp091.Table, []any:
		b, err := json.Marshal(plain(v))
		if err != nil {
			return validText(fmt.Sprint(v))
		}
		return string(b)
	}
	return fmt.Sprint(v) // integers
}

// plain is a value as JSON can write it.
func plain(v any) any {
	switch v := v.(type) {
	case amqp091.Table:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[validText(k)] = plain(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = plain(e)
		}
		return l
	case int, int8, int16, int32, int64, uint8, uint16, uint32, bool, nil:
		return v
	}
	return text(v)
}

func decimal(d amqp091.Decimal) string {
	digits := strconv.FormatInt(int64(d.Value), 10)
	sign := ""
	if d.Value < 0 {
		sign, digits = "-", digits[1:]
	}
	scale := int(d.Scale)
	if scale == 0 {
		return sign + digits
	}
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

// validText is s, or, if that is not UTF-8, its bytes in a readable form that
// differs whenever they do.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return "hex:" + hex.EncodeToString([]byte(s))
}
