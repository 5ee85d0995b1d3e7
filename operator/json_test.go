package operator_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/capbus/gocap/operator"
)

// TestC156IDsInJSON: what reads numbers as floating point, as JavaScript does,
// loses no digit: ids and cursors are text, bodies come back byte for byte, and
// an id that went that way hits its row alone. Numbers that are left are small.
func TestC156IDsInJSON(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.failed(t, 30, "t")
	page, err := d.List(t.Context(), operator.Filter{Box: operator.Published}, operator.Page{Limit: 10})
	must(t, err)
	text, err := json.Marshal(page)
	must(t, err)
	var script struct {
		Messages []map[string]any `json:"messages"`
		Next     any              `json:"next"`
	}
	must(t, json.Unmarshal(text, &script))
	if _, isText := script.Next.(string); !isText || len(script.Messages) != 10 {
		t.Fatalf("%d messages, next %v", len(script.Messages), script.Next)
	}
	for i, m := range script.Messages {
		for field, v := range m {
			if n, isNumber := v.(float64); isNumber && math.Abs(n) >= 1<<53 {
				t.Errorf("field %s is the number %v", field, n)
			}
		}
		if m["id"] != page.Messages[i].ID {
			t.Errorf("id %v, want %s", m["id"], page.Messages[i].ID)
		}
	}
	id, _ := script.Messages[3]["id"].(string)
	want(t, "requeue by an id from JSON", 1, 0)(d.Requeue(t.Context(), operator.Published, id))
	var back operator.Message
	one, err := d.Read(t.Context(), operator.Published, id)
	must(t, err)
	text, err = json.Marshal(one)
	must(t, err)
	must(t, json.Unmarshal(text, &back))
	if back.ID != id || string(back.Body) != `{"big":9007199254740993}` {
		t.Errorf("it comes back as %s, %s", back.ID, back.Body)
	}
}
