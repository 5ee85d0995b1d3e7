package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyBookingsThatCommittedAreTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	const want = "Ada: booked true\nBob: booked false\nEve: booked true\nevents of: [Ada Eve]\n"
	if out.String() != want {
		t.Errorf("it printed:\n%swant:\n%s", &out, want)
	}
}
