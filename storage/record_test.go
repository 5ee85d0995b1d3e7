package storage_test

import (
	"strings"
	"testing"

	"github.com/capbus/gocap/storage"
)

func TestIDSurvivesItsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]storage.ID{
		"00000000-0000-0000-0000-000000000000": {},
		"01234567-89ab-7cde-8f01-23456789abcd": {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x7c, 0xde, 0x8f, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd},
		"ffffffff-ffff-ffff-ffff-ffffffffffff": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if got := want.String(); got != text {
			t.Errorf("String() = %q, want %q", got, text)
		}
		for _, s := range []string{text, strings.ToUpper(text)} {
			if got, err := storage.ParseID(s); err != nil || got != want {
				t.Errorf("ParseID(%q) = %v, %v", s, got, err)
			}
		}
	}
}

func TestParseIDRefusesWhatIsNoUUID(t *testing.T) {
	t.Parallel()
	const good = "01234567-89ab-7cde-8f01-23456789abcd"
	for _, s := range []string{
		"", "x", good + " ", " " + good, good[:35], strings.ReplaceAll(good, "-", ""), "{" + good + "}", "urn:uuid:" + good,
		strings.Replace(good, "-", "_", 1), strings.Replace(good, "7", "g", 1), "0123456789ab-7cde-8f01-23456789abcd----",
		"01234567-89ab-7cde-8f0-123456789abcd", strings.Repeat("-", 36), strings.Repeat("é", 18),
	} {
		if id, err := storage.ParseID(s); err == nil || id != (storage.ID{}) {
			t.Errorf("ParseID(%q) = %v, %v, want an error and no id", s, id, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("01234567-89ab-7cde-8f01-23456789abcd")
	f.Add("01234567-89AB-7CDE-8F01-23456789ABCD")
	f.Add("no id")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := storage.ParseID(s)
		if err != nil {
			return
		}
		if !strings.EqualFold(id.String(), s) {
			t.Errorf("ParseID(%q).String() = %q", s, id)
		}
	})
}

func FuzzIDRoundTrip(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var id storage.ID
		copy(id[:], b)
		if got, err := storage.ParseID(id.String()); err != nil || got != id {
			t.Errorf("ParseID(%q) = %v, %v", id, got, err)
		}
	})
}

func TestNamesOfStatesAndBoxes(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		storage.Scheduled.String():   "scheduled",
		storage.Delayed.String():     "delayed",
		storage.Succeeded.String():   "succeeded",
		storage.Failed.String():      "failed",
		storage.Status(9).String():   "Status(9)",
		storage.Outbox.String():      "published",
		storage.Inbox.String():       "received",
		storage.Box(0).String():      "Box(0)",
		storage.Status(-1).String():  "Status(-1)",
		storage.Box(200).String():    "Box(200)",
		storage.ID{15: 1}.String():   "00000000-0000-0000-0000-000000000001",
		storage.ID{0: 0xab}.String(): "ab000000-0000-0000-0000-000000000000",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The numbers of the states are in every database: they must not change.
func TestNumbersOfStates(t *testing.T) {
	t.Parallel()
	states := []storage.Status{storage.Scheduled, storage.Delayed, storage.Succeeded, storage.Failed}
	for number, s := range states {
		if int(s) != number {
			t.Errorf("%v is stored as %d, want %d", s, s, number)
		}
	}
}
