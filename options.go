package gocap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// Options configures a bus. Storage and Transport are required; every other zero
// value means its default. A negative value means "off" where the field says so
// and is refused elsewhere.
type Options struct {
	// Storage keeps the outbox and the inbox. Required.
	Storage storage.Storage
	// Transport moves the messages. It may be nil in a bus that only publishes
	// and is never started. Required.
	Transport transport.Transport
	// Registry holds the subscriptions made with cap.Subscribe. Defaults to
	// subscribe.Default.
	Registry *subscribe.Registry
	// Subscriptions are served beside the registry's. Defaults to none.
	Subscriptions []subscribe.Subscription
	// Middleware is around every handler, outside of that of subscribe.With; the
	// first is the outermost. Defaults to none.
	Middleware []subscribe.Middleware
	// Codec encodes and decodes bodies, where cap.WithCodec and subscribe.Codec
	// name no other. Defaults to transport.JSON.
	Codec transport.Codec
	// Logger gets the bus's log lines; bodies are never logged. Defaults to
	// slog.Default().
	Logger *slog.Logger

	// Version isolates services that share tables or a broker: it is the suffix
	// of queue names. At most 20 bytes of [A-Za-z0-9._-]. Defaults to v1.
	Version string
	// AlsoVersions are other versions whose unfinished rows this bus sends and
	// handles as its own, once no instance of theirs has them, or none lives that
	// sends elsewhere; it deletes them, too, when they have expired. Queues stay
	// those of Version: what is still in the queues of another version is for
	// its instances. Take one out when Health and the log tell of none of its
	// rows any more. Keys have their order within each version. Defaults to none.
	AlsoVersions []string
	// DefaultGroupName is the group of subscriptions without one. Defaults to
	// "cap.queue." and the package path of main.
	DefaultGroupName string
	// GroupNamePrefix is put before every group name, with a dot. Defaults to
	// none.
	GroupNamePrefix string
	// TopicNamePrefix is put before every topic published or subscribed to, with
	// a dot. Defaults to none.
	TopicNamePrefix string

	// FailedRetryCount is the number of attempts in all, for sending and for
	// handling; 1 means no retry. Defaults to 50.
	FailedRetryCount int
	// FailedRetryInterval is the wait between later attempts. Defaults to 1m0s.
	FailedRetryInterval time.Duration
	// ImmediateRetries is how many failed attempts are followed by another at
	// once, before the waits begin; negative: none. Defaults to 2.
	ImmediateRetries int
	// RetryBackoff returns the wait after each failed attempt, the first ones
	// too; attempt counts from 1. It replaces FailedRetryInterval and
	// ImmediateRetries. Defaults to none.
	RetryBackoff func(attempt int) time.Duration
	// FailedThresholdCallback is called when a message has failed for good, after
	// that is stored: exactly once, or again if the process dies, or a Stop ends
	// its context, while it runs. A panic in it is logged. Calls of one side
	// (sending, handling) follow one another. Defaults to none.
	FailedThresholdCallback func(ctx context.Context, info FailedInfo)

	// SucceedMessageExpiredAfter is how long finished rows stay. Negative: a sent
	// row is deleted at once, and inbox rows stay 24 h. The exactly-once effect of
	// a handler lasts as long as its inbox row. Defaults to 24h0m0s.
	SucceedMessageExpiredAfter time.Duration
	// FailedMessageExpiredAfter is how long rows that failed for good stay.
	// Defaults to 360h0m0s.
	FailedMessageExpiredAfter time.Duration
	// CollectorCleaningInterval is the wait between rounds of deleting expired
	// rows. Defaults to 5m0s.
	CollectorCleaningInterval time.Duration
	// CollectorBatchSize is the most rows deleted by one statement. Defaults to
	// 1000.
	CollectorBatchSize int

	// UseStorageLock lets only the instance that holds a lock in the storage look
	// for rows without a living owner: one lock for the outbox, and one for each
	// subscription. It is held for FallbackWindow from its last renewal, by the
	// database's clock, and ends with Stop. It saves looks where there are very many
	// instances; against double work it is not needed, ownership sees to that.
	// Defaults to false.
	UseStorageLock bool
	// SendTrace holds hooks on the way of messages out. Defaults to none.
	SendTrace *processor.Trace
	// HandleTrace holds hooks on the way of messages in. Defaults to none.
	HandleTrace *subscribe.Trace

	// FallbackWindow is the lease of an instance: rows of one that was killed are
	// taken over within it and 2 s. It must exceed the longest write transaction
	// on SQLite. Defaults to 15s.
	FallbackWindow time.Duration
	// UnhandledAfter is how long a received message waits for a subscription
	// before it fails for good. Defaults to 1h0m0s.
	UnhandledAfter time.Duration
	// AllowUnroutable lets a message that no queue takes count as sent. Otherwise
	// it is kept, costs no attempt, and is sent again after waits that grow from
	// FailedRetryInterval to 5 minutes, until a queue takes it or
	// FailedMessageExpiredAfter has passed. Defaults to false.
	AllowUnroutable bool
	// PollInterval bounds how long a row that is due can go unnoticed. Defaults to
	// 1s.
	PollInterval time.Duration

	// ConsumerCount is the number of receivers of a group; one with an Ordered
	// subscription has one. Defaults to 1.
	ConsumerCount int
	// Concurrency is the number of workers of a group. Defaults to the number of
	// CPUs.
	Concurrency int
	// SendWindow is the most messages being sent at once, and once more as many
	// that have a key. Defaults to 2000.
	SendWindow int
	// BatchSize is the most rows in one statement, or messages in one send.
	// Defaults to 500.
	BatchSize int
	// HandlerTimeout ends the context of a handler's run. Defaults to none.
	HandlerTimeout time.Duration
	// StopTimeout bounds Stop, as the context given to it does. Until 3 s before
	// (a fifth of it, if that is less), handlers and sends may finish. Defaults
	// to 25s.
	StopTimeout time.Duration
	// SkipMigrations leaves the tables to the operator. Defaults to false.
	SkipMigrations bool

	// AllowedReplyTopics are the topics, or patterns with wildcards, to which a
	// message may have the answer of a subscribe.Reply handler sent; they are
	// written without TopicNamePrefix. A message that asks for another fails for
	// good before its handler runs. Set it where those who send requests are
	// trusted with less than this service: a bridge, a gateway, a broker that
	// holds them to topics. Defaults to "#", any topic.
	AllowedReplyTopics []string

	// MaxBodySize is the most bytes of a published body. Defaults to 16777216.
	MaxBodySize int
	// MaxHeaders is the most headers that a publisher may add to a message.
	// Defaults to 256.
	MaxHeaders int
}

// FieldError is a problem of one field of Options.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return "Options." + e.Field + ": " + e.Problem }

// WithDefaults returns a copy in which every zero value is its default.
func (o Options) WithDefaults() Options {
	o.Registry = or(o.Registry, subscribe.Default)
	if o.Codec == nil {
		o.Codec = transport.JSON
	}
	o.Logger = or(o.Logger, slog.Default())
	o.Version = or(o.Version, "v1")
	o.DefaultGroupName = or(o.DefaultGroupName, defaultGroup())
	o.FailedRetryCount = or(o.FailedRetryCount, 50)
	o.FailedRetryInterval = or(o.FailedRetryInterval, time.Minute)
	o.ImmediateRetries = or(o.ImmediateRetries, 2)
	o.SucceedMessageExpiredAfter = or(o.SucceedMessageExpiredAfter, 24*time.Hour)
	o.FailedMessageExpiredAfter = or(o.FailedMessageExpiredAfter, 15*24*time.Hour)
	o.CollectorCleaningInterval = or(o.CollectorCleaningInterval, 5*time.Minute)
	o.CollectorBatchSize = or(o.CollectorBatchSize, 1000)
	o.FallbackWindow = or(o.FallbackWindow, 15*time.Second)
	o.UnhandledAfter = or(o.UnhandledAfter, time.Hour)
	o.PollInterval = or(o.PollInterval, time.Second)
	o.ConsumerCount = or(o.ConsumerCount, 1)
	o.Concurrency = or(o.Concurrency, runtime.NumCPU())
	o.SendWindow = or(o.SendWindow, 2000)
	o.BatchSize = or(o.BatchSize, 500)
	o.StopTimeout = or(o.StopTimeout, 25*time.Second)
	if len(o.AllowedReplyTopics) == 0 {
		o.AllowedReplyTopics = []string{"#"}
	}
	o.MaxBodySize = or(o.MaxBodySize, 16<<20)
	o.MaxHeaders = or(o.MaxHeaders, 256)
	return o
}

// or returns v, or d when v is the zero value.
func or[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// defaultGroup names the group after the package of main, which stays the same
// whatever the binary is called; "" where the build does not tell.
func defaultGroup() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "" || info.Path == "command-line-arguments" {
		return ""
	}
	return "cap.queue." + strings.TrimSuffix(info.Path, ".test")
}

// Validate returns every problem, joined, in the order of the fields; each is a
// *FieldError. Adapters that have a Validate method are asked too. Transport may
// be nil: Start refuses it.
func (o Options) Validate() error {
	v := &validation{}
	o = o.WithDefaults()
	v.check(!isNil(o.Storage), "Storage", "is required, such as the one of sqlite.Open")
	v.adapter("Storage", o.Storage)
	v.check(o.Transport == nil || !isNil(o.Transport), "Transport", fmt.Sprintf("is a nil %T; leave it nil if the bus only publishes", o.Transport))
	v.adapter("Transport", o.Transport)
	for i, s := range o.Subscriptions {
		err := s.Validate()
		v.check(err == nil, fmt.Sprintf("Subscriptions[%d]", i), fmt.Sprint(err))
	}
	for i, mw := range o.Middleware {
		v.check(mw != nil, fmt.Sprintf("Middleware[%d]", i), "is nil")
	}
	v.check(validVersion(o.Version), "Version", fmt.Sprintf("%q is not 1 to 20 bytes of letters, digits, '.', '_' and '-'", o.Version))
	o.checkAlsoVersions(v)
	v.name("DefaultGroupName", o.DefaultGroupName)
	v.name("GroupNamePrefix", o.GroupNamePrefix)
	v.name("TopicNamePrefix", o.TopicNamePrefix)
	o.checkKeeping(v)
	o.checkEngines(v)
	return errors.Join(v.errs...)
}

// checkKeeping looks at how often a message is tried, and how long it stays.
func (o Options) checkKeeping(v *validation) {
	v.count("FailedRetryCount", o.FailedRetryCount)
	v.duration("FailedRetryInterval", o.FailedRetryInterval)
	v.duration("FailedMessageExpiredAfter", o.FailedMessageExpiredAfter)
	v.duration("CollectorCleaningInterval", o.CollectorCleaningInterval)
	v.count("CollectorBatchSize", o.CollectorBatchSize)
}

// checkEngines looks at what runs between Start and Stop, and at the limits.
func (o Options) checkEngines(v *validation) {
	if o.UseStorageLock && o.Storage != nil {
		_, can := o.Storage.(storage.Locker)
		v.check(can, "UseStorageLock", fmt.Sprintf("%T has no locks; leave it false (it is not needed against double work)", o.Storage))
	}
	v.duration("FallbackWindow", o.FallbackWindow)
	v.duration("UnhandledAfter", o.UnhandledAfter)
	v.duration("PollInterval", o.PollInterval)
	if o.PollInterval > 0 && o.FallbackWindow > 0 {
		v.check(o.PollInterval < o.FallbackWindow, "PollInterval", fmt.Sprintf("%s is not less than FallbackWindow (%s)", o.PollInterval, o.FallbackWindow))
	}
	v.count("ConsumerCount", o.ConsumerCount)
	v.count("Concurrency", o.Concurrency)
	v.count("SendWindow", o.SendWindow)
	v.count("BatchSize", o.BatchSize)
	v.check(o.HandlerTimeout >= 0, "HandlerTimeout", fmt.Sprintf("%s is negative; 0 means none", o.HandlerTimeout))
	v.duration("StopTimeout", o.StopTimeout)
	for _, topic := range o.AllowedReplyTopics {
		err := transport.CheckPattern(topic)
		v.check(err == nil, "AllowedReplyTopics", fmt.Sprint(err))
	}
	v.count("MaxBodySize", o.MaxBodySize)
	v.count("MaxHeaders", o.MaxHeaders)
}

type validation struct{ errs []error }

func (v *validation) check(ok bool, field, problem string) {
	if !ok {
		v.errs = append(v.errs, &FieldError{Field: field, Problem: problem})
	}
}

func (v *validation) count(field string, n int) {
	v.check(n > 0, field, fmt.Sprintf("%d is negative; 0 means the default", n))
}

func (v *validation) duration(field string, d time.Duration) {
	v.check(d > 0, field, fmt.Sprintf("%s is negative; 0 means the default", d))
}

// name looks at a group name or prefix, which may be empty.
func (v *validation) name(field, s string) {
	if s != "" {
		err := transport.CheckTopic(s)
		v.check(err == nil, field, fmt.Sprint(err))
	}
}

// adapter asks an adapter for problems of its own configuration.
func (v *validation) adapter(field string, a any) {
	if x, ok := a.(interface{ Validate() error }); ok && !isNil(a) {
		err := x.Validate()
		v.check(err == nil, field, fmt.Sprint(err))
	}
}

// isNil reports whether v is nil or a nil pointer in an interface.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}
