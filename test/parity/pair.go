// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pair is a request that goes to both servers. The two differ only where the stored
// objects do that they were made from: in UIDs, versions, addresses.
type pair struct {
	// ID names the pair in a run ("pods#17"), What describes it.
	ID   string `json:"id"`
	What string `json:"what"`
	// Both is what upstream is sent; Kindred is sent Ours.
	Both request `json:"request"`
	Ours request `json:"-"`
	// aspect is what the answers are about: objects, unless said otherwise.
	aspect aspect
	// codeOnly leaves bodies out: lists of what each server has of its own.
	codeOnly bool
	// names are what Kindred's answer calls what upstream's names otherwise.
	names aliases
}

// outcome is a pair and what came of it.
type outcome struct {
	pair
	Upstream    *answer      `json:"upstream"`
	Kindred     *answer      `json:"kindred"`
	Differences []difference `json:"differences"`
}

// lanes is how many pairs are under way at a time.
const lanes = 4

// sides are the two that are compared.
type sides struct{ upstream, kindred *server }

// exchange sends one pair.
func (s sides) exchange(ctx context.Context, p pair) (outcome, error) {
	upstream, err := s.upstream.answer(ctx, p.Both)
	if err != nil {
		return outcome{}, fmt.Errorf("%s (%s): %w", p.ID, p.What, err)
	}
	kindred, err := s.kindred.answer(ctx, p.Ours)
	if err != nil {
		return outcome{}, fmt.Errorf("%s (%s): %w", p.ID, p.What, err)
	}
	o := outcome{pair: p, Upstream: upstream, Kindred: kindred}
	o.Differences = compare(o)
	return o, nil
}

// brokenOff is the code of an answer that never came, although the server runs on: its
// handler panicked. Upstream does, with some schemas.
const brokenOff = 0

// answer is send, to a server that may panic.
func (s *server) answer(ctx context.Context, r request) (*answer, error) {
	a, err := s.send(ctx, r)
	if err == nil || ctx.Err() != nil {
		return a, err
	}
	if gone := s.Running(); gone != nil {
		return nil, errors.Join(err, gone)
	}
	return newAnswer(brokenOff, nil, []byte("the connection broke off")), nil
}

// all sends pairs that do not depend on each other, and keeps their order.
func (s sides) all(ctx context.Context, pairs []pair) ([]outcome, error) {
	outcomes, errs := make([]outcome, len(pairs)), make([]error, len(pairs))
	next := make(chan int)
	var working sync.WaitGroup
	for range lanes {
		working.Go(func() {
			for i := range next {
				outcomes[i], errs[i] = s.exchange(ctx, pairs[i])
			}
		})
	}
	for i := range pairs {
		next <- i
	}
	close(next)
	working.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}
