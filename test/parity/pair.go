// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pair is a request that is sent to both servers. The two versions differ only where the stored
// objects do: in UIDs, resourceVersions and addresses.
type pair struct {
	// ID identifies the pair in a run ("pods#17"), What describes it.
	ID   string `json:"id"`
	What string `json:"what"`
	// Both is the request to upstream, Ours the one to Kindred.
	Both request `json:"request"`
	Ours request `json:"-"`
	// aspect is the aspect of differences in the body; the object if it is empty.
	aspect aspect
	// codeOnly excludes the body from the comparison: lists of objects that each server creates
	// itself.
	codeOnly bool
	// names map Kindred's generated values to upstream's.
	names aliases
}

// outcome is a pair with its responses.
type outcome struct {
	pair
	Upstream    *answer      `json:"upstream"`
	Kindred     *answer      `json:"kindred"`
	Differences []difference `json:"differences"`
}

// lanes is the number of pairs in progress at a time.
const lanes = 4

// sides are the two compared servers.
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

// brokenOff is the code of a missing response of a server that is still running: its handler
// panicked. Upstream's does so with some schemas.
const brokenOff = 0

// answer is send for a server that may panic.
func (s *server) answer(ctx context.Context, r request) (*answer, error) {
	a, err := s.send(ctx, r)
	if err == nil || ctx.Err() != nil {
		return a, err
	}
	if gone := s.CheckRunning(); gone != nil {
		return nil, errors.Join(err, gone)
	}
	return newAnswer(brokenOff, nil, []byte("the connection broke off")), nil
}

// all sends independent pairs concurrently, and returns the outcomes in order.
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
