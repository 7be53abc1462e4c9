// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/test/servers"
)

// attack has the state that all rounds share.
type attack struct {
	server *server
	// second is the target of moves, started on first use.
	second  *server
	binary  string
	scratch string
	seed    uint64
	// size is the maximum number of objects of a graph.
	size int
	// runs counts worlds, to name them uniquely.
	runs int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	binary := flag.String("kindred", "bin/kindred", "the binary to attack; \"make build\" makes it")
	seed := flag.Uint64("seed", 0, "seed of the graphs and steps (default a random one)")
	rounds := flag.Int("rounds", 20, "number of graphs to attack")
	first := flag.Int("round", 0, "the first round, to repeat a failure: -round 7 -rounds 1")
	size := flag.Int("size", 14, "maximum number of objects of a graph, 2 or more")
	reductions := flag.Int("reductions", 60, "number of smaller rounds to try after one that fails")
	flag.Parse()
	if *size < 2 || *rounds < 1 || *first < 0 || flag.NArg() > 0 {
		return errors.New("-size must be 2 or more, -rounds 1 or more, -round 0 or more, and no arguments are accepted")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	scratch, err := os.MkdirTemp("", "kindred-attack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	fmt.Printf("seed %d\n", *seed)
	own := filepath.Join(scratch, "kindred") // a copy, so that a new build during the rounds changes nothing
	if err := servers.CopyBinary(own, *binary); err != nil {
		return err
	}
	s, err := startServer(ctx, own, filepath.Join(scratch, "server"))
	if err != nil {
		return err
	}
	a := &attack{server: s, binary: own, scratch: scratch, seed: *seed, size: *size}
	defer a.stop()
	began := time.Now()
	for i := range *rounds {
		if err := a.round(ctx, *first+i, *reductions); err != nil {
			return err
		}
	}
	fmt.Printf("%d rounds passed in %s\n", *rounds, time.Since(began).Round(time.Second))
	return nil
}

func (a *attack) stop() {
	a.server.running.Stop()
	if a.second != nil {
		a.second.running.Stop()
	}
}

// targetServer returns the second server, and starts it on the first call.
func (a *attack) targetServer(ctx context.Context) (_ *server, err error) {
	if a.second == nil {
		a.second, err = startServer(ctx, a.binary, filepath.Join(a.scratch, "other"))
	}
	return a.second, err
}

// round attacks one graph. If the attack finds a violation, it reduces the graph and the steps.
func (a *attack) round(ctx context.Context, i, reductions int) error {
	rng := rand.New(rand.NewPCG(a.seed, uint64(i)))
	g := randomGraph(rng, a.size)
	r := round{g, randomSteps(rng, g)}
	fmt.Printf("round %d: %d objects, %d steps\n", i, len(g), len(r.steps))
	fault := a.play(ctx, r)
	if fault == nil || ctx.Err() != nil {
		return errors.Join(fault, ctx.Err())
	}
	fmt.Printf("round %d fails: %v\nreducing it\n", i, fault)
	small := shrink(r, reductions, func(r round) bool {
		err := a.play(ctx, r)
		if err != nil && ctx.Err() == nil && verbOf(err) == verbOf(fault) {
			fault = err
			return true
		}
		return false
	})
	return fmt.Errorf("seed %d, round %d; the smallest round found that fails:\n\n%s\n\n%w", a.seed, i, small, fault)
}

func (r round) String() string {
	var steps []string
	for _, s := range r.steps {
		steps = append(steps, s.String())
	}
	return r.graph.String() + "\n\n" + strings.Join(steps, "\n")
}

// play creates the graph of a round in a new world, and carries out the steps. It returns the first
// violation.
func (a *attack) play(ctx context.Context, r round) (err error) {
	a.runs++
	w := &world{server: a.server, run: fmt.Sprintf("r%d", a.runs), graph: r.graph, uids: map[types.UID]int{}, targetServer: a.targetServer}
	defer func() { err = errors.Join(err, w.remove(ctx)) }()
	if err := w.create(ctx); err != nil {
		return err
	}
	if _, err := w.await(ctx, "after the creation", w.checkSettled); err != nil {
		return err
	}
	for _, s := range r.steps {
		err := verbs[s.verb](w, ctx, s)
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return &stepError{s, err}
		}
	}
	return nil
}

// stepError is the failure of a step.
type stepError struct {
	step step
	err  error
}

func (e *stepError) Error() string { return e.step.String() + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// verbOf returns the verb that failed, so that the reduction keeps the same failure.
func verbOf(err error) string {
	if e := (*stepError)(nil); errors.As(err, &e) {
		return e.step.verb
	}
	return ""
}
