package gocap_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/processor"
	"github.com/capbus/gocap/storage"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// The adapters of these tests are told apart by their secret alone.
type someStorage struct {
	storage.Storage

	Password string
}

type someTransport struct {
	transport.Transport

	Password string
}

type someCodec struct{ Password string }

func (someCodec) Encode(any) ([]byte, error) { return nil, nil }
func (someCodec) Decode([]byte, any) error   { return nil }

// zeroIsDefault lists the fields whose default is their zero value. A new field
// is either here or gets its default in WithDefaults.
func zeroIsDefault() []string {
	return []string{
		"Storage", "Transport", // required
		"Subscriptions", "Middleware", "AlsoVersions", "GroupNamePrefix", "TopicNamePrefix", "RetryBackoff", "FailedThresholdCallback",
		"UseStorageLock", "SendTrace", "HandleTrace", "AllowUnroutable", "HandlerTimeout", "SkipMigrations",
	}
}

// filled returns Options in which every field has a value of its own.
func filled(t *testing.T) gocap.Options {
	t.Helper()
	o := gocap.Options{
		Storage:                 &someStorage{Password: secret},
		Transport:               &someTransport{Password: secret},
		Registry:                &subscribe.Registry{},
		Subscriptions:           []subscribe.Subscription{subscribe.To("a", func(context.Context, string) error { return nil })},
		Middleware:              []subscribe.Middleware{func(next subscribe.Handler) subscribe.Handler { return next }},
		Codec:                   &someCodec{Password: secret},
		Logger:                  slog.New(slog.DiscardHandler),
		AlsoVersions:            []string{"v0"},
		AllowedReplyTopics:      []string{"quote.*"},
		RetryBackoff:            func(int) time.Duration { return 1 },
		FailedThresholdCallback: func(context.Context, gocap.FailedInfo) {},
		SendTrace:               &processor.Trace{},
		HandleTrace:             &subscribe.Trace{},
	}
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("x" + fmt.Sprint(i))
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(1000 + i))
		case reflect.Bool:
			f.SetBool(true)
		default:
			t.Fatalf("field %s is of a kind that this test does not know (%s)", name, f.Kind())
		}
	}
	return o
}

func fieldNames() []string {
	var names []string
	for f := range reflect.TypeFor[gocap.Options]().Fields() {
		names = append(names, f.Name)
	}
	return names
}

func TestEveryOptionHasADefault(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(gocap.Options{}.WithDefaults())
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch zero, listed := v.Field(i).IsZero(), slices.Contains(zeroIsDefault(), name); {
		case zero && !listed && name != "DefaultGroupName": // "" where the build does not tell
			t.Errorf("WithDefaults leaves %s zero, and it is not listed as one whose default is zero", name)
		case !zero && listed:
			t.Errorf("%s is listed as one whose default is zero, but WithDefaults makes it %v", name, v.Field(i))
		}
	}
	for _, name := range zeroIsDefault() {
		if !slices.Contains(fieldNames(), name) {
			t.Errorf("%s is listed, but Options has no such field", name)
		}
	}
}

func TestWithDefaultsKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	given := filled(t)
	before, after := reflect.ValueOf(given), reflect.ValueOf(given.WithDefaults())
	for i := range before.NumField() {
		b, a := before.Field(i), after.Field(i)
		same := false
		switch b.Kind() {
		case reflect.Func, reflect.Slice:
			same = b.UnsafePointer() == a.UnsafePointer()
		default:
			same = b.Interface() == a.Interface()
		}
		if !same {
			t.Errorf("WithDefaults changed %s from %v to %v", before.Type().Field(i).Name, b, a)
		}
	}
}

func TestWithDefaultsDoesNotChangeTheCallersOptions(t *testing.T) {
	t.Parallel()
	var o gocap.Options
	_ = o.WithDefaults()
	if !reflect.ValueOf(o).IsZero() {
		t.Errorf("WithDefaults changed the value it was called on: %+v", o)
	}
}

func TestDefaultGroupIsNamedAfterMain(t *testing.T) {
	t.Parallel()
	// The main package of this test binary is <module>.test, and .test is cut.
	switch got := (gocap.Options{}).WithDefaults().DefaultGroupName; got {
	case "", "cap.queue.github.com/capbus/gocap":
	default:
		t.Errorf("DefaultGroupName is %q, want cap.queue.github.com/capbus/gocap", got)
	}
}

const secret = "s3cret-of-the-database"

func TestLogValueShowsEveryField(t *testing.T) {
	t.Parallel()
	var shown []string
	for _, a := range filled(t).LogValue().Group() {
		shown = append(shown, a.Key)
	}
	if want := fieldNames(); !slices.Equal(shown, want) {
		t.Errorf("LogValue shows\n%q, want every field, in order:\n%q", shown, want)
	}
}

func TestLogValueShowsTheEffectiveValue(t *testing.T) {
	t.Parallel()
	o := filled(t)
	v := reflect.ValueOf(o)
	for i, a := range o.LogValue().Group() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Int, reflect.Int64, reflect.String, reflect.Bool:
			if got, want := fmt.Sprint(a.Value), fmt.Sprint(f); got != want {
				t.Errorf("LogValue shows %s as %s, want %s", a.Key, got, want)
			}
		}
	}
	for _, a := range (gocap.Options{}).LogValue().Group() {
		if a.Key == "FailedRetryCount" && a.Value.Int64() != 50 {
			t.Errorf("LogValue of the zero Options shows FailedRetryCount %v, want its default 50", a.Value)
		}
	}
}

func TestLogsShowNoSecrets(t *testing.T) {
	t.Parallel()
	o := filled(t)
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var out bytes.Buffer
		slog.New(handler(&out)).Info("start", "options", o)
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s log line shows a secret of an adapter:\n%s", name, out.String())
		}
		if !strings.Contains(out.String(), "someStorage") {
			t.Errorf("%s log line does not name the type of the storage:\n%s", name, out.String())
		}
	}
}
