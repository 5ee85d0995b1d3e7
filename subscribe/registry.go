package subscribe

import (
	"errors"
	"fmt"
	"sync"
)

// ErrRegistryInUse is returned while a running bus serves the registry.
var ErrRegistryInUse = errors.New("the registry is in use by a running bus: add subscriptions before its Start, or after its Stop; " +
	"give a second bus another one (Options.Registry)")

// Registry holds subscriptions for a bus. The zero value is ready. Safe for
// concurrent use.
type Registry struct {
	mu    sync.Mutex
	subs  []Subscription
	inUse bool
}

// Default is the registry of cap.Subscribe, and of every bus whose Options name
// no other.
var Default = &Registry{}

// Add adds subscriptions, all or none. Errors: ErrRegistryInUse; every problem
// of a subscription; a subscription whose group and name (by default its topic)
// are there already, with both places.
func (r *Registry) Add(subs ...Subscription) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inUse {
		return ErrRegistryInUse
	}
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Validate())
	}
	all := append(r.subs[:len(r.subs):len(r.subs)], subs...)
	if err := errors.Join(append(errs, duplicates(all))...); err != nil {
		return err
	}
	r.subs = all
	return nil
}

// Use returns the subscriptions and keeps everybody else from the registry until
// release is called. The bus calls it at Start. Error: ErrRegistryInUse.
func (r *Registry) Use() (subs []Subscription, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inUse {
		return nil, nil, ErrRegistryInUse
	}
	r.inUse = true
	return append([]Subscription(nil), r.subs...), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inUse = false
	}, nil
}

// duplicates reports subscriptions that share group and name: rows in the inbox
// are told apart by both.
func duplicates(subs []Subscription) error {
	type key struct{ group, name string }
	seen := map[key]Subscription{}
	var errs []error
	for _, s := range subs {
		k := key{s.group, s.key()}
		if first, ok := seen[k]; ok {
			errs = append(errs, fmt.Errorf("subscription %s is there already: %s; give one of them another subscribe.Group or subscribe.Name", s, first))
			continue
		}
		seen[k] = s
	}
	return errors.Join(errs...)
}
