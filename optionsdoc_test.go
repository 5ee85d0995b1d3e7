package gocap_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/subscribe"
	"github.com/capbus/gocap/transport"
)

// documented returns the comment of every field of Options, as the source has it.
func documented(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Options" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List { //nolint:forcetypeassert // Options is a struct
			for _, name := range f.Names {
				docs[name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		return false
	})
	return docs
}

// said is how the comments name defaults that are no plain values.
func said() map[string]struct {
	text string
	is   func(gocap.Options) bool
} {
	type o = gocap.Options
	return map[string]struct {
		text string
		is   func(gocap.Options) bool
	}{
		"Registry":           {"subscribe.Default", func(o o) bool { return o.Registry == subscribe.Default }},
		"Codec":              {"transport.JSON", func(o o) bool { return o.Codec == transport.JSON }},
		"Logger":             {"slog.Default()", func(o o) bool { return o.Logger == slog.Default() }},
		"DefaultGroupName":   {`"cap.queue." and the package path of main`, func(o o) bool { return o.DefaultGroupName == "" || strings.HasPrefix(o.DefaultGroupName, "cap.queue.") }},
		"AllowedReplyTopics": {`"#", any topic`, func(o o) bool { return slices.Equal(o.AllowedReplyTopics, []string{"#"}) }},
		"Concurrency":        {"the number of CPUs", func(o o) bool { return o.Concurrency == runtime.NumCPU() }},
	}
}

// Case C192: what the documentation says of a default is what the code does.
func TestCommentsOfOptionsSayTheirDefaults(t *testing.T) {
	t.Parallel()
	docs, defaults := documented(t), gocap.Options{}.WithDefaults()
	v := reflect.ValueOf(defaults)
	for i, name := range fieldNames() {
		doc := docs[name]
		if !strings.HasPrefix(doc, name+" ") {
			t.Errorf("the comment of %s does not begin with its name: %q", name, doc)
		}
		if strings.HasSuffix(doc, "Required.") {
			if name != "Storage" && name != "Transport" {
				t.Errorf("%s is said to be required, but it has a default", name)
			}
			continue
		}
		_, text, ok := strings.Cut(doc[max(0, strings.LastIndex(doc, "Defaults to ")):], "Defaults to ")
		text, dot := strings.CutSuffix(text, ".")
		if !ok || !dot {
			t.Errorf("the comment of %s does not end with \"Defaults to X.\" or \"Required.\": %q", name, doc)
			continue
		}
		if special, ok := said()[name]; ok {
			if text != special.text || !special.is(defaults) {
				t.Errorf("%s is said to default to %s, but it is %v", name, text, v.Field(i))
			}
			continue
		}
		want := fmt.Sprint(v.Field(i))
		if v.Field(i).IsZero() && v.Field(i).Kind() != reflect.Bool {
			want = "none"
		}
		if text != want {
			t.Errorf("%s is said to default to %s, but it does to %s", name, text, want)
		}
	}
}

func TestOptionsThatAreNotSupportedYetSaySo(t *testing.T) {
	t.Parallel()
	docs := documented(t)
	for _, c := range badOptions() {
		if strings.Contains(c.says, "not supported yet") && !strings.Contains(docs[c.field], "Not supported yet.") {
			t.Errorf("Validate refuses %s as not supported yet, but its comment does not say so: %q", c.field, docs[c.field])
		}
	}
	for name, doc := range docs {
		o := filled(t)
		err := o.Validate()
		if strings.Contains(doc, "Not supported yet") && !strings.Contains(err.Error(), "Options."+name+": is not supported yet") {
			t.Errorf("the comment of %s says that it is not supported yet, but Validate takes it", name)
		}
	}
}
