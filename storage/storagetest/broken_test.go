package storagetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capbus/gocap/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mutant is a store that breaks one rule, and the case that must see it.
type mutant struct {
	name   string
	caught string
	spoil  func(b *broken)
}

func mutants() []mutant {
	return slices.Concat(
		txMutants(), bindMutants(), duplicateMutants(),
		lookMutants(), nextMutants(), idMutants(), takeOverLimitMutants(),
		settleMutants(), claimMutants(),
		inboxMutants(), keyMutants(), faultMutants(), splitWrongMutants(), unmatchedMutants(),
		lifeMutants(), lockMutants(), destinationMutants(), handlerMutants(), raceMutants(), purgeScopeMutants(),
		inspectMutants(), operatorMutants(), operateMutants(), restMutants(), restLifeMutants(), restTakeOverMutants(), restInboxMutants(), headMutants(), glanceMutants(),
	)
}

// quick lets a case that waits for what never comes give up soon.
func quick() config { return config{lease: 30 * time.Millisecond, patience: 700 * time.Millisecond} }

func TestBrokenStoresAreRejected(t *testing.T) {
	t.Parallel()
	byName := map[string]testCase{}
	for _, c := range cases() {
		byName[c.name] = c
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c, ok := byName[m.caught]
			if !ok {
				t.Fatalf("there is no case %q", m.caught)
			}
			s := observe(t, c, func(testing.TB) storage.Storage {
				b := newBroken()
				m.spoil(b)
				return b
			}, quick())
			if !s.Failed() {
				t.Errorf("case %s passes with a store that breaks the rule", c.name)
			} else if !strings.Contains(s.output(), c.why) {
				t.Errorf("the contract is not quoted in\n%s", s.output())
			}
		})
	}
}

// TestSoundStoreIsAccepted: the wrapper alone makes no case fail.
func TestSoundStoreIsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := observe(t, c, func(testing.TB) storage.Storage { return newBroken() }, configOf(nil))
			if s.Failed() {
				t.Error(s.output())
			}
		})
	}
}

func TestCasesAreNamedOnceAndSayWhy(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] || c.name == "" {
			t.Errorf("case %q is there twice, or has no name", c.name)
		}
		seen[c.name] = true
		if len(c.why) < 20 || c.run == nil {
			t.Errorf("case %q does not say why", c.name)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	got := configOf([]Option{WithLease(time.Second), WithPatience(time.Minute)})
	if got != (config{lease: time.Second, patience: time.Minute}) {
		t.Errorf("options make %+v", got)
	}
}
