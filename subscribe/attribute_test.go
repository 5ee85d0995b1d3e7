package subscribe_test

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capbus/gocap/subscribe"
)

type handlers struct {
	subscribe.Class `cap:"product,group=coupon,interval=1m,concurrency=2"`

	Deleted subscribe.On[string] `cap:"deleted,concurrency=4,timeout=5s,retries=3"`
	Priced  subscribe.On[string] `cap:"price.*,name=prices,group=price,ordered"`
	Plain   subscribe.On[int]    `cap:"plain"`

	store map[string]string //nolint:unused // a field of the service's own
	After func()
}

func newHandlers(t *tally) *handlers {
	return &handlers{
		Deleted: t.handler("deleted "), Priced: t.handler("priced "),
		Plain: func(_ context.Context, n int) error { t.add(fmt.Sprint("plain ", n)); return nil },
	}
}

// shown is all of a subscription but its place, and where its functions are.
func shown(s subscribe.Subscription) string {
	return regexp.MustCompile(`where:"[^"]*"|0x[0-9a-f]+`).ReplaceAllString(fmt.Sprintf("%#v", s), "")
}

func number(context.Context, int) error { return nil }

func TestTaggedIsTheSameAsTo(t *testing.T) {
	t.Parallel()
	h := newHandlers(&tally{})
	got, err := subscribe.Tagged(h)
	if err != nil {
		t.Fatal(err)
	}
	class := []subscribe.Option{subscribe.Group("coupon"), subscribe.FailedRetryInterval(time.Minute), subscribe.Concurrency(2)}
	with := func(opts ...subscribe.Option) []subscribe.Option {
		return append(class[:len(class):len(class)], opts...)
	}
	want := []subscribe.Subscription{
		subscribe.To("product.deleted", nothing, with(subscribe.Concurrency(4), subscribe.Timeout(5*time.Second), subscribe.FailedRetryCount(3))...),
		subscribe.To("product.price.*", nothing, with(subscribe.Name("prices"), subscribe.Group("price"), subscribe.Ordered())...),
		subscribe.To("product.plain", number, with()...),
	}
	if len(got) != len(want) {
		t.Fatalf("%d subscriptions, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		if g, w := shown(got[i]), shown(want[i]); g != w {
			t.Errorf("subscription %d is\n%s\nwant\n%s", i, g, w)
		}
	}
	byValue, err := subscribe.Tagged(*h)
	if err != nil || len(byValue) != len(want) {
		t.Errorf("of the struct itself: %v, %v", byValue, err)
	}
}

func TestTaggedHandlersHandle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen tally
		var trace []string
		subs, err := subscribe.Tagged(newHandlers(&seen), subscribe.With(tracing(&trace, "mw")))
		if err != nil {
			t.Fatal(err)
		}
		r := running(t, nil, subs...)
		r.send("product.deleted", "1", `"a"`)
		r.send("product.price.up", "2", `"b"`)
		r.send("product.plain", "3", `7`)
		elapse(time.Second)
		for _, what := range []string{"deleted a", "priced b", "plain 7"} {
			if seen.of(what) != 1 {
				t.Errorf("%q handled %d times", what, seen.of(what))
			}
		}
		for _, rec := range r.records() {
			want := map[string]string{"1": "coupon product.deleted", "2": "price prices", "3": "coupon product.plain"}[rec.MessageID]
			if got := rec.Group + " " + rec.Subscriber; got != want {
				t.Errorf("row of %s: %s, want %s", rec.Topic, got, want)
			}
		}
		if len(trace) != 6 {
			t.Errorf("middleware given to Tagged saw %v", trace)
		}
	})
}

type embedded struct {
	On subscribe.On[string] `cap:"deep"`
}

type again struct {
	On subscribe.On[string] `cap:"deep"`
}

type notOn func(context.Context, string) error

func wrongStructs() map[string]struct {
	c    any
	says []string
} {
	on := subscribe.On[string](nothing)
	type c = struct {
		c    any
		says []string
	}
	return map[string]c{
		"nil":             {nil, []string{"<nil> is not a struct"}},
		"no struct":       {7, []string{"int is not a struct"}},
		"nil pointer":     {(*handlers)(nil), []string{"a nil *subscribe_test.handlers is not a struct"}},
		"pointer to that": {new(*handlers), []string{"**subscribe_test.handlers is not a struct"}},
		"no handler":      {embeddedNothing{}, []string{"embeddedNothing (", "no field of type subscribe.On"}},
		"not assigned":    {handlers{}, []string{"handlers.Deleted (", "handlers.Priced (", "handlers.Plain (", "not assigned"}},
		"unexported": {struct {
			hidden subscribe.On[string] `cap:"t"`
		}{on}, []string{"struct.hidden (", "not exported"}},
		"no tag":        {struct{ A subscribe.On[string] }{on}, []string{"struct.A (", "no cap tag"}},
		"malformed tag": {withTag("cap:deleted"), []string{"struct.A (", "cannot be read", "cap:deleted"}},
		"another type": {struct {
			A func(context.Context, string) error `cap:"t"`
		}{nothing}, []string{"struct.A (", "not a subscribe.On", "func(context.Context, string) error"}},
		"type of its own": {struct {
			A notOn `cap:"t"`
		}{nothing}, []string{"struct.A (", "not a subscribe.On", "notOn"}},
		"pointer to On": {struct {
			A *subscribe.On[string] `cap:"t"`
		}{&on}, []string{"struct.A (", "not a subscribe.On"}},
		"embedded": {struct{ embedded }{embedded{on}}, []string{"struct.embedded.On (", "embedded struct"}},
		"embedded twice": {struct {
			embedded
			again
			A subscribe.On[string] `cap:"t"`
		}{embedded{on}, again{on}, on}, []string{"embedded.On (", "again.On (", "embedded struct"}},
		"embedded and hidden": {struct {
			embedded
			On string
			A  subscribe.On[string] `cap:"t"`
		}{embedded: embedded{on}, A: on}, []string{"embedded.On (", "embedded struct"}},
		"embedded pointer": {struct {
			*embedded
			A subscribe.On[string] `cap:"t"`
		}{A: on}, []string{"struct.embedded.On (", "embedded struct"}},
		"class without tag": {struct {
			subscribe.Class
			A subscribe.On[string] `cap:"t"`
		}{A: on}, []string{"struct.Class (", "no cap tag"}},
		"class with a name": {struct {
			C subscribe.Class      `cap:"p"`
			A subscribe.On[string] `cap:"t"`
		}{A: on}, []string{"struct.C (", "must be embedded"}},
		"name in a class": {struct {
			subscribe.Class `cap:"p,name=n"`
			A               subscribe.On[string] `cap:"t"`
		}{A: on}, []string{"struct.Class (", "name is for one handler"}},
		"dot behind the prefix": {struct {
			subscribe.Class `cap:"p."`
			A               subscribe.On[string] `cap:"t"`
		}{A: on}, []string{"struct.Class (", "ends with a dot"}},
		"dot before the topic": {struct {
			subscribe.Class `cap:"p"`
			A               subscribe.On[string] `cap:".t"`
		}{A: on}, []string{"struct.A (", "begins with a dot"}},
		"two handlers of one name": {struct {
			A subscribe.On[string] `cap:"t,group=g"`
			B subscribe.On[string] `cap:"t,group=g"`
		}{on, on}, []string{"struct.A (", "struct.B (", "is there already", "subscribe.Name"}},
		"several": {struct {
			A subscribe.On[string] `cap:"t,speed=1"`
			B subscribe.On[string] `cap:""`
			C subscribe.On[string] `cap:"t"`
		}{A: on, B: on}, []string{"struct.A (", `no key "speed"`, "struct.B (", "no topic", "struct.C (", "not assigned"}},
	}
}

type embeddedNothing struct{ Name string }

func TestWrongStructsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range wrongStructs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subs, err := subscribe.Tagged(c.c)
			if err == nil || subs != nil {
				t.Fatalf("taken: %v, %v", subs, err)
			}
			for _, text := range append(c.says, "attribute_test.go:") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

// withTag is a struct whose only field is a handler with this tag.
func withTag(tag string) any {
	v := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "A", Type: reflect.TypeFor[subscribe.On[string]](), Tag: reflect.StructTag(tag),
	}})).Elem()
	v.Field(0).Set(reflect.ValueOf(subscribe.On[string](nothing)))
	return v.Interface()
}

func TestWrongTagsAreRefused(t *testing.T) {
	t.Parallel()
	for tag, says := range map[string]string{
		"":                           "no topic",
		",group=g":                   "no topic",
		"t,":                         `no key ""`,
		"t,Concurrency=4":            `no key "Concurrency"; there are group, name, concurrency, timeout, retries, interval, ordered and brokerretry`,
		"t, concurrency=4":           `blanks around " concurrency=4"`,
		"t ,concurrency=4":           `blanks around "t "`,
		"t,group= g":                 "blanks",
		"t,concurrency":              "concurrency needs a value",
		"t,concurrency=":             "concurrency needs a value",
		"t,concurrency=four":         "concurrency: strconv.Atoi",
		"t,concurrency=0":            "Concurrency: 0 is not at least 1",
		"t,retries=-1":               "FailedRetryCount: -1",
		"t,timeout=5":                "timeout: time: missing unit",
		"t,timeout=-5s":              "Timeout: -5s is not positive",
		"t,interval=x":               "interval: time: invalid duration",
		"t,group=":                   "group needs a value",
		"t,name=":                    "name needs a value",
		"t,ordered=yes":              "ordered has no value",
		"t,group=a,group=b":          "group is there twice",
		"t,brokerretry":              "brokerretry needs a value",
		"t,brokerretry=3":            "brokerretry: time",
		"t,brokerretry=x/1m":         "brokerretry: strconv",
		"t,brokerretry=-1/1m":        "BrokerRetry: -1 attempts",
		"t,brokerretry=3/1m,ordered": "Ordered and BrokerRetry",
	} {
		_, err := subscribe.Tagged(withTag(fmt.Sprintf("cap:%q", tag)))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("tag %q: %v, want an error that says %q", tag, err, says)
		}
	}
}

func TestADuplicateOfATaggedHandlerNamesBothPlaces(t *testing.T) {
	t.Parallel()
	reg := &subscribe.Registry{}
	if err := reg.Add(subscribe.To("product.deleted", nothing, subscribe.Group("coupon"))); err != nil {
		t.Fatal(err)
	}
	subs, err := subscribe.Tagged(newHandlers(&tally{}))
	if err != nil {
		t.Fatal(err)
	}
	err = reg.Add(subs...)
	if err == nil || !strings.Contains(err.Error(), "at subscribe_test.handlers.Deleted (") || strings.Count(err.Error(), "attribute_test.go:") != 2 {
		t.Errorf("%v does not name the field and both places", err)
	}
}

func TestATagCanSayBrokerRetry(t *testing.T) {
	t.Parallel()
	on := subscribe.On[string](nothing)
	subs, err := subscribe.Tagged(struct {
		subscribe.Class `cap:"p,brokerretry=2/5s"`
		A               subscribe.On[string] `cap:"a"`
		B               subscribe.On[string] `cap:"b,brokerretry=0/0s"`
	}{A: on, B: on})
	if err != nil {
		t.Fatal(err)
	}
	if err := refused(t, newRetryBroker(), subs...); !strings.Contains(err.Error(), "BrokerRetry(2, 5s)") || !strings.Contains(err.Error(), "BrokerRetry(3, 1m0s)") {
		t.Errorf("%v does not tell of both values", err)
	}
}
