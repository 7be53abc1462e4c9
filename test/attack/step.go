// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// victim is the process that is killed during a step.
type victim string

const (
	noVictim  victim = ""
	theServer victim = "server"
	theClient victim = "client"
)

// step is one operation on a graph.
type step struct {
	verb string
	// targets are the IDs of nodes. Nodes that do not exist at the time of the step are skipped.
	targets []int
	// cascade is the policy of a deletion.
	cascade string
	// together has two clients undelete the targets at the same time, in opposite orders.
	together bool
	// kill is killed after a delay.
	kill  victim
	after time.Duration
}

func (s step) String() string {
	var targets []string
	for _, id := range s.targets {
		targets = append(targets, fmt.Sprintf("n%02d", id))
	}
	text := s.verb + " " + strings.Join(targets, " ")
	if s.cascade != "" {
		text += ", " + s.cascade
	}
	if s.together {
		text += ", by two clients at the same time"
	}
	if s.kill != noVictim {
		text += fmt.Sprintf(", SIGKILL of the %s after %s", s.kill, s.after)
	}
	return text
}

// simpler returns variants of s with one part removed.
func (s step) simpler() (steps []step) {
	for i := range s.targets {
		if less := s; len(s.targets) > 1 {
			less.targets = slices.Delete(slices.Clone(s.targets), i, i+1)
			steps = append(steps, less)
		}
	}
	if less := s; s.kill != noVictim {
		less.kill = noVictim
		steps = append(steps, less)
	}
	if less := s; s.together {
		less.together = false
		steps = append(steps, less)
	}
	return steps
}

// errEnd ends a round whose graph is blocked.
var errEnd = errors.New("the graph is blocked, as previewed")

// verbs has the operations of the steps.
var verbs = map[string]func(*world, context.Context, step) error{
	"tree":     (*world).tree,
	"lint":     (*world).lint,
	"fix":      (*world).fix,
	"eve":      (*world).eve,
	"delete":   (*world).delete,
	"undelete": (*world).undelete,
	"move":     (*world).move,
}

// randomSteps returns the steps of a round. Most deletions are undone.
func randomSteps(rng *rand.Rand, g graph) (steps []step) {
	steps = append(steps, step{verb: "tree", targets: randomTargets(rng, g, len(g))}, step{verb: "lint"})
	if rng.IntN(2) == 0 {
		steps = append(steps, step{verb: "fix"})
	}
	for range 1 + rng.IntN(2) {
		targets := randomTargets(rng, g, 4)
		s := step{verb: "delete", targets: targets, cascade: []string{"background", "background", "foreground", "orphan"}[rng.IntN(4)]}
		s.kill, s.after = randomKill(rng)
		steps = append(steps, s)
		if rng.IntN(2) == 0 {
			steps = append(steps, step{verb: "eve"})
		}
		rng.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		s = step{verb: "undelete", targets: slices.Clone(targets), together: rng.IntN(4) == 0}
		s.kill, s.after = randomKill(rng)
		steps = append(steps, s)
	}
	steps = append(steps, step{verb: "eve"})
	if rng.IntN(3) == 0 {
		s := step{verb: "move"}
		s.kill, s.after = randomKill(rng)
		s.after *= 4 // it takes longer than the others
		steps = append(steps, s)
	}
	return steps
}

func randomTargets(rng *rand.Rand, g graph, limit int) (ids []int) {
	for _, i := range rng.Perm(len(g))[:min(len(g), 1+rng.IntN(limit))] {
		ids = append(ids, g[i].id)
	}
	return ids
}

// randomKill chooses a victim and a moment: a verb on a small graph takes some tenths of a second.
func randomKill(rng *rand.Rand) (victim, time.Duration) {
	after := time.Duration(20+rng.IntN(500)) * time.Millisecond
	switch rng.IntN(6) {
	case 0:
		return theServer, after
	case 1:
		return theClient, after
	}
	return noVictim, 0
}

// targets returns the existing nodes of a step.
func (w *world) targets(s step, found map[int]seen) (nodes []node) {
	for _, id := range s.targets {
		n, ok := w.graph.find(id)
		if _, exists := found[id]; ok && exists {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// attempt runs a verb and kills the victim of the step. It restarts a killed server.
func (w *world) attempt(ctx context.Context, s step, v verb) (result, error) {
	if s.kill == theClient {
		v.killed = s.after
	}
	if s.kill != theServer {
		return w.server.run(ctx, v)
	}
	crashed := make(chan error, 1)
	go func() {
		time.Sleep(s.after)
		crashed <- w.crash(ctx)
	}()
	r, err := w.server.run(ctx, v)
	return r, errors.Join(err, <-crashed)
}
