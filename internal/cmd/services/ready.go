package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/capbus/gocap/internal/testenv"
)

// A readier makes servers ready and keeps those that it has started.
type readier struct {
	machine machine

	mu      sync.Mutex
	started []server
	keep    []string // settings that find what was started again
}

// ready returns the environment in which tests find all servers.
func (r *readier) ready(ctx context.Context) ([]string, error) {
	kinds := testenv.Kinds()
	if err := r.provide(ctx, kinds); err != nil {
		return nil, err
	}
	// At the same time: RabbitMQ takes seconds to start.
	var wg sync.WaitGroup
	env, errs := make([][]string, len(kinds)), make([]error, len(kinds))
	for i, k := range kinds {
		wg.Go(func() { env[i], errs[i] = r.environment(ctx, k) })
	}
	wg.Wait()
	var all []string
	for _, e := range env {
		all = append(all, e...)
	}
	return all, errors.Join(errs...)
}

// provide sees to it that each server can be run on this machine. That some
// server answers is not enough, for tests run servers of their own beside it.
func (r *readier) provide(ctx context.Context, kinds []testenv.Kind) error {
	var missing []error
	var packages []string
	for _, k := range kinds {
		if _, err := r.machine.installed(k); err != nil {
			if r.machine.getenv(k.BinFolder) != "" {
				return err // the user means these programs and no others
			}
			missing = append(missing, err)
			packages = append(packages, k.Package)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	docker := r.machine.compose()
	if docker == nil {
		return nil
	}
	debian := r.machine.install(ctx, packages)
	if debian == nil {
		missing = nil
		for _, k := range kinds {
			if _, err := r.machine.installed(k); err != nil {
				missing = append(missing, err)
			}
		}
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("servers that tests need are missing\n%w", errors.Join(append(missing,
		also("containers instead", docker),
		also("packages", debian),
		fmt.Errorf("on Debian or Ubuntu: sudo apt-get install %s", strings.Join(packages, " ")),
		errors.New("elsewhere: install the servers, or Docker with compose"))...))
}

func also(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// environment returns the settings for one server, which it starts if need be.
func (r *readier) environment(ctx context.Context, k testenv.Kind) ([]string, error) {
	var env []string
	folder, missing := r.machine.installed(k)
	if missing == nil {
		env = append(env, k.BinFolder+"="+folder)
	}
	if k.Variable == "" {
		return env, nil
	}
	if address := r.machine.getenv(k.Variable); address != "" {
		if err := r.machine.probe(ctx, k, address); err != nil {
			return nil, fmt.Errorf("%s at the address in %s: %w", k.Name, k.Variable, err)
		}
		return env, nil
	}
	unusable := r.machine.probe(ctx, k, k.Default)
	if unusable == nil {
		return append(env, k.Variable+"="+k.Default), nil
	}
	address, err := r.start(ctx, k, missing)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot be had. At the usual address: %w", k.Name, unusable), err)
	}
	return append(env, k.Variable+"="+address), nil
}

// start runs the installed programs, or a container where there are none or they
// do not work.
func (r *readier) start(ctx context.Context, k testenv.Kind, missing error) (string, error) {
	problem := missing
	if missing == nil {
		var address string
		if address, problem = r.launch(ctx, k, r.machine.own); problem == nil {
			return address, nil
		}
	}
	if err := r.machine.compose(); err != nil {
		return "", errors.Join(problem, also("a container instead", err))
	}
	address, err := r.launch(ctx, k, r.machine.container)
	if err != nil {
		return "", errors.Join(problem, err)
	}
	return address, nil
}

func (r *readier) launch(ctx context.Context, k testenv.Kind, how func(testenv.Kind) (server, error)) (string, error) {
	s, err := how(k)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	r.started = append(r.started, s)
	r.mu.Unlock()
	if err := s.Start(ctx); err != nil {
		return "", err
	}
	say("%s: started one for these tests: %s", k.Name, s.Address())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep = append(r.keep, fmt.Sprintf("export %s='%s'    # ends with: %s", k.Variable, s.Address(), s.Hint()))
	return s.Address(), nil
}

// close ends what was started, unless it is to stay.
func (r *readier) close() error {
	if r.machine.keep() {
		for _, line := range r.keep {
			say("still running: %s", line)
		}
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, len(r.started))
	for i, s := range r.started {
		wg.Go(func() { errs[i] = s.Remove() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
