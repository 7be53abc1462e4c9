// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// work is a measurement that any side can do.
type work struct {
	// nodes is the number of simulated nodes.
	nodes   int
	measure func(context.Context, *side) (float64, error)
}

// on starts a side and measures the work on it.
func (w work) on(ctx context.Context, b *bench, start starter) (float64, error) {
	s, err := start(ctx, b, w.nodes)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	return w.measure(ctx, s)
}

// ofKindred measures the work on Kindred alone.
func ofKindred(w work) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) { return w.on(ctx, b, startKindred) }
}

// comparison is how the results of both sides become a figure.
type comparison struct {
	of func(ours, theirs float64) float64
	// isGain is set if a higher figure is better.
	isGain bool
}

var (
	// share is for times and memory: which part of upstream's Kindred takes.
	share = comparison{of: func(ours, theirs float64) float64 { return ours / theirs }}
	// faster is for times: how many times longer upstream takes.
	faster = comparison{func(ours, theirs float64) float64 { return theirs / ours }, true}
	// more is for rates: how many times more Kindred does.
	more = comparison{func(ours, theirs float64) float64 { return ours / theirs }, true}
)

// beside measures the work on upstream and then on Kindred, prints both results, and returns how they compare.
func beside(row string, w work, compare comparison) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		theirLoad := load()
		theirs, err := w.on(ctx, b, startUpstream)
		if err != nil {
			return 0, fmt.Errorf("upstream: %w", err)
		}
		ourLoad := load()
		ours, err := w.on(ctx, b, startKindred)
		if err != nil {
			return 0, err
		}
		ratio := compare.of(ours, theirs)
		fmt.Printf("  Kindred %.4g (load %s), upstream %.4g (load %s)\n", ours, ourLoad, theirs, theirLoad)
		return ratio, b.remember(ctx, result{row, ours, theirs, ratio, ourLoad, theirLoad})
	}
}

// result is a row of the history.
type result struct {
	row                 string
	ours, theirs, ratio float64
	ourLoad, theirLoad  string
}

// line returns the columns of the history: date, commit, row, Kindred's result, upstream's, how they compare, and the load of the
// machine before each.
func (r result) line(date, commit string) string {
	return fmt.Sprintf("%s\t%s\t%s\t%.4g\t%.4g\t%.3g\t%s\t%s\n", date, commit, r.row, r.ours, r.theirs, r.ratio, r.ourLoad, r.theirLoad)
}

// remember appends a result to the history, if there is one.
func (b *bench) remember(ctx context.Context, r result) error {
	if b.history == "" {
		return nil
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return fmt.Errorf("find the commit for the history: %w", err)
	}
	file, err := os.OpenFile(b.history, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(r.line(time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)))); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
