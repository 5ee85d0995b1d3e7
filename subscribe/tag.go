package subscribe

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// lookup returns the cap tag of a field. A tag that is meant to be one and cannot
// be read as such is an error: it would be overlooked.
func lookup(f reflect.StructField) (tag string, ok bool, err error) {
	tag, ok = f.Tag.Lookup("cap")
	if raw := string(f.Tag); !ok && strings.HasPrefix(raw, "cap:") {
		return "", false, fmt.Errorf("tag `%s` cannot be read; write `cap:\"topic,key=value\"`", raw)
	}
	return tag, ok, nil
}

// parseTag returns the topic of a tag, and its options; not are keys that it must
// not have.
func parseTag(tag string, not ...string) (topic string, opts []Option, err error) {
	parts := strings.Split(tag, ",")
	seen := map[string]bool{}
	var errs []error
	for i, part := range parts {
		key, value, has := strings.Cut(part, "=")
		switch {
		case strings.TrimSpace(part) != part || strings.TrimSpace(value) != value || strings.TrimSpace(key) != key:
			errs = append(errs, fmt.Errorf("there are blanks around %q", part))
		case i == 0:
		case seen[key]:
			errs = append(errs, fmt.Errorf("%s is there twice", key))
		case slices.Contains(not, key):
			errs = append(errs, fmt.Errorf("%s is for one handler; put it into the tag of that", key))
		default:
			opt, err := tagOption(key, value, has)
			opts, errs = append(opts, opt), append(errs, err)
		}
		seen[key] = i > 0
	}
	if err := errors.Join(errs...); err != nil {
		return "", nil, fmt.Errorf("tag %q: %w", tag, err)
	}
	return parts[0], opts, nil
}

// tagOption is the option that a key of a tag stands for.
func tagOption(key, value string, has bool) (Option, error) {
	switch key {
	case "ordered":
		if has {
			return nil, errors.New("ordered has no value")
		}
		return Ordered(), nil
	case "group", "name", "concurrency", "timeout", "retries", "interval", "brokerretry":
		if value == "" {
			return nil, fmt.Errorf("%s needs a value: %[1]s=…", key)
		}
	}
	switch key {
	case "group":
		return Group(value), nil
	case "name":
		return Name(value), nil
	case "concurrency":
		return parsed(key, value, strconv.Atoi, Concurrency)
	case "timeout":
		return parsed(key, value, time.ParseDuration, Timeout)
	case "retries":
		return parsed(key, value, strconv.Atoi, FailedRetryCount)
	case "interval":
		return parsed(key, value, time.ParseDuration, FailedRetryInterval)
	case "brokerretry":
		attempts, ttl, _ := strings.Cut(value, "/")
		n, err := strconv.Atoi(attempts)
		if err != nil {
			return nil, fmt.Errorf("brokerretry: %w", err)
		}
		return parsed(key, ttl, time.ParseDuration, func(d time.Duration) Option { return BrokerRetry(n, d) })
	}
	return nil, fmt.Errorf("there is no key %q; there are group, name, concurrency, timeout, retries, interval, ordered and brokerretry", key)
}

func parsed[V any](key, value string, parse func(string) (V, error), option func(V) Option) (Option, error) {
	v, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return option(v), nil
}
