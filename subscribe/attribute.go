package subscribe

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// On is a handler as a field of a struct, with a tag that says what it handles;
// see Tagged. Any function of that shape can be assigned to it.
type On[T any] func(context.Context, T) error

// subscription is what Tagged knows a field of type On by.
func (f On[T]) subscription(topic string, opts []Option) Subscription { return To(topic, f, opts...) }

type attribute interface {
	subscription(topic string, opts []Option) Subscription
}

// Class is embedded in a struct for Tagged, with a tag for all its handlers: a
// prefix of their topics, and options.
type Class struct{}

// Tagged returns the subscriptions of a struct, or a pointer to one, whose
// exported fields of type On are handlers:
//
//	type Coupons struct {
//		subscribe.Class `cap:"product,group=coupon"`
//
//		Deleted subscribe.On[ProductDeleted] `cap:"deleted,concurrency=4"`
//		Priced  subscribe.On[ProductPriced]  `cap:"price.*,timeout=5s"`
//	}
//
// They are the same as those of To: Deleted handles the topic product.deleted.
// The constructor of the struct assigns the fields; Tagged reads them once.
//
// A tag is a topic, then options with commas between. That of the embedded Class
// is put before each topic, with a dot (it may be empty); its options are those of
// all handlers, and an option of a field goes before. opts are as options of the
// Class: they are for what a tag cannot say, such as With.
//
//	group=g           Group
//	name=n            Name (not in a Class)
//	concurrency=4     Concurrency
//	timeout=5s        Timeout
//	retries=10        FailedRetryCount: attempts in all
//	interval=1m       FailedRetryInterval
//	ordered           Ordered
//	brokerretry=3/1m  BrokerRetry
//
// A topic or name with a comma in it needs To. The error names every wrong tag,
// every handler that is not exported or not assigned, every field that has a tag
// and is no handler, and every problem that Registry.Add finds.
func Tagged(c any, opts ...Option) ([]Subscription, error) {
	s := &tagged{place: callSite(), opts: opts}
	v := reflect.ValueOf(c)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("subscribe.Tagged at %s: %s is not a struct with handlers, nor a pointer to one", s.place, given(c))
	}
	s.typ = v.Type()
	fields := fieldsOf(s.typ, s.typ)
	for _, f := range fields { // its prefix is needed first
		if isClass(f) {
			s.class(f)
		}
	}
	for _, f := range fields {
		if !isClass(f) {
			s.field(f, v)
		}
	}
	if len(s.subs)+len(s.errs) == 0 {
		s.fail("", errors.New("it has no field of type subscribe.On, so that nothing would be handled"))
	}
	for _, sub := range s.subs {
		s.errs = append(s.errs, sub.Validate())
	}
	if err := errors.Join(append(s.errs, duplicates(s.subs))...); err != nil {
		return nil, err
	}
	return s.subs, nil
}

// tagged is one call of Tagged.
type tagged struct {
	place  string
	typ    reflect.Type
	prefix string
	opts   []Option // of all handlers
	subs   []Subscription
	errs   []error
}

// where names a field, and the call of Tagged.
func (s *tagged) where(field string) string {
	name := s.typ.String()
	if s.typ.Name() == "" {
		name = "struct" // its String is all of its source
	}
	if field != "" {
		name += "." + field
	}
	return name + " (" + s.place + ")"
}

func (s *tagged) fail(field string, err error) {
	s.errs = append(s.errs, fmt.Errorf("%s: %w", s.where(field), err))
}

// fieldsOf returns the fields of a struct, and those of structs embedded in it at
// any depth, also what other fields of the name hide: it would be overlooked. The
// names of those say where they are. in are the structs around, t the last.
func fieldsOf(t reflect.Type, in ...reflect.Type) (fields []reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		fields = append(fields, f)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if !f.Anonymous || inner.Kind() != reflect.Struct || slices.Contains(in, inner) {
			continue
		}
		for _, deep := range fieldsOf(inner, append(in[:len(in):len(in)], inner)...) {
			deep.Name, deep.Index = f.Name+"."+deep.Name, append([]int{i}, deep.Index...)
			fields = append(fields, deep)
		}
	}
	return fields
}

func isClass(f reflect.StructField) bool { return f.Type == reflect.TypeFor[Class]() }

// class reads the tag of the embedded Class.
func (s *tagged) class(f reflect.StructField) {
	tag, ok, err := lookup(f)
	switch {
	case !f.Anonymous || len(f.Index) > 1:
		err = errors.New("subscribe.Class must be embedded, in the struct itself")
	case err == nil && !ok:
		err = errors.New("the embedded subscribe.Class has no cap tag, such as `cap:\"product,group=coupon\"`")
	}
	if err != nil {
		s.fail(f.Name, err)
		return
	}
	prefix, opts, err := parseTag(tag, "name")
	switch {
	case err != nil:
		s.fail(f.Name, err)
	case strings.HasSuffix(prefix, "."):
		s.fail(f.Name, fmt.Errorf("tag %q: the prefix ends with a dot; the one before the topic of a field comes by itself", tag))
	}
	s.prefix, s.opts = prefix, append(s.opts[:len(s.opts):len(s.opts)], opts...)
}

// field makes the subscription of a handler.
func (s *tagged) field(f reflect.StructField, v reflect.Value) {
	tag, ok, err := lookup(f)
	handler := f.Type.Kind() == reflect.Func && f.Type.Implements(reflect.TypeFor[attribute]())
	if err == nil && !ok && !handler {
		return // a field of the service's own
	}
	switch {
	case err != nil:
	case len(f.Index) > 1:
		err = errors.New("it is in an embedded struct; give that to Tagged by itself")
	case !handler:
		err = fmt.Errorf("it has a cap tag, but its type %s is not a subscribe.On", f.Type)
	case !ok:
		err = errors.New("it has no cap tag that says its topic, such as `cap:\"deleted\"`")
	case !f.IsExported():
		err = errors.New("it is not exported; begin its name with a capital letter")
	case v.FieldByIndex(f.Index).IsNil():
		err = errors.New("it is not assigned: the constructor must set every handler before Tagged")
	}
	if err != nil {
		s.fail(f.Name, err)
		return
	}
	topic, opts, err := parseTag(tag)
	switch {
	case err != nil:
	case topic == "":
		err = fmt.Errorf("tag %q has no topic", tag)
	case s.prefix != "" && strings.HasPrefix(topic, "."):
		err = fmt.Errorf("tag %q: the topic begins with a dot; the one behind the prefix of the Class comes by itself", tag)
	}
	if err != nil {
		s.fail(f.Name, err)
		return
	}
	a := v.FieldByIndex(f.Index).Interface().(attribute) //nolint:forcetypeassert // handler says so
	sub := a.subscription(join(s.prefix, topic), append(s.opts[:len(s.opts):len(s.opts)], opts...))
	sub.where = s.where(f.Name)
	s.subs = append(s.subs, sub)
}

func given(c any) string {
	if v := reflect.ValueOf(c); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T", c)
	}
	return fmt.Sprintf("%T", c)
}
