// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/kindred-project/kindred/test/servers"
)

// run has the settings of the flags.
type run struct {
	options
	binary, dir string
	kinds       []string
	goal        float64
	top         int
	show        *regexp.Regexp
	shown       int
	matching    bool
	json        string
	keep        bool
	self        bool
	list        bool
}

func main() {
	if err := realMain(); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func realMain() error {
	r, err := parse()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return r.run(ctx)
}

func parse() (*run, error) {
	r := &run{}
	var kinds, show string
	flag.StringVar(&r.binary, "kindred", "bin/kindred", "the binary to compare; \"make build\" makes it")
	flag.StringVar(&r.dir, "dir", "test/servers", "the directory of upstream's module: its programs are built there, and kept")
	flag.StringVar(&kinds, "kinds", "", "compare these kinds only: resources, kinds or groups, with commas between (pods,jobs.batch,policy)")
	flag.Uint64Var(&r.seed, "seed", 1, "decides which mutations are tried")
	flag.IntVar(&r.n, "n", 240, "how many mutations of a kind are created; half as many are sent as updates and patches, a quarter to each subresource")
	flag.Float64Var(&r.goal, "goal", 0, "fail unless every kind that is served agrees in this many percent of requests")
	flag.IntVar(&r.top, "top", 40, "how many classes of differences are printed")
	flag.StringVar(&show, "show", "", "print the requests and answers that differ and whose number, description or difference matches this regular expression")
	flag.IntVar(&r.shown, "show-most", 10, "how many of them")
	flag.BoolVar(&r.matching, "show-all", false, "with -show: those that agree, too")
	flag.StringVar(&r.json, "json", "", "write all of it to this file as JSON")
	flag.BoolVar(&r.keep, "keep", false, "keep the servers' directory and say where it is")
	flag.BoolVar(&r.self, "self", false, "compare upstream with itself instead: whatever differs then is this program's own fault")
	flag.BoolVar(&r.list, "list", false, "list what upstream serves, whether Kindred does, and how many manifests there are, and exit")
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if kinds != "" {
		r.kinds = strings.Split(kinds, ",")
	}
	if show != "" {
		pattern, err := regexp.Compile(show)
		if err != nil {
			return nil, fmt.Errorf("-show: %w", err)
		}
		r.show = pattern
	}
	return r, nil
}

func (r *run) run(ctx context.Context) error {
	manifests, err := readManifests(manifestFiles)
	if err != nil {
		return err
	}
	s, stop, err := r.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	theirs, err := discover(ctx, s.upstream)
	if err != nil {
		return err
	}
	ours, err := discover(ctx, s.kindred)
	if err != nil {
		return err
	}
	chosen, err := theirs.choose(r.kinds)
	if err != nil {
		return err
	}
	if r.list {
		printCatalog(chosen, ours, manifests)
		return nil
	}
	if err := r.prepare(ctx, s, theirs, ours); err != nil {
		return err
	}
	trials, scores, err := r.compareKinds(ctx, s, chosen, ours, manifests)
	if err != nil {
		return errors.Join(err, s.upstream.CheckRunning(), s.kindred.CheckRunning())
	}
	if extra := ours.notIn(theirs); len(extra) > 0 {
		fmt.Printf("served by kindred alone: %s\n", strings.Join(extra, ", "))
	}
	return r.conclude(trials, scores)
}

// start starts both servers. The returned function stops them.
func (r *run) start(ctx context.Context) (sides, func(), error) {
	programs, err := servers.BuildUpstream(ctx, r.dir)
	if err != nil {
		return sides{}, nil, err
	}
	scratch, err := os.MkdirTemp("", "kindred-parity-")
	if err != nil {
		return sides{}, nil, err
	}
	var s sides
	stop := func() {
		for _, server := range []*server{s.kindred, s.upstream} {
			if server != nil {
				server.Stop()
			}
		}
		if r.keep {
			fmt.Println("kept", scratch)
			return
		}
		_ = os.RemoveAll(scratch)
	}
	began := time.Now()
	if s.upstream, err = connected(programs.Start(ctx, filepath.Join(scratch, "upstream"), false)); err != nil {
		stop()
		return sides{}, nil, err
	}
	other := filepath.Join(scratch, "other")
	if r.self {
		s.kindred, err = connected(programs.Start(ctx, other, false))
	} else {
		s.kindred, err = connected(servers.Kindred{Binary: r.binary, Args: []string{"--no-node"}}.Start(ctx, other))
	}
	if err != nil {
		stop()
		return sides{}, nil, err
	}
	fmt.Printf("both servers run (%.1f s)\n", time.Since(began).Seconds())
	return s, stop, nil
}

// prepare brings both servers to the same state.
func (r *run) prepare(ctx context.Context, s sides, theirs, ours *catalog) error {
	documents, err := readDocuments(manifestFiles, setupFile)
	if err != nil {
		return err
	}
	if err := errors.Join(s.upstream.revokeControllers(ctx), s.kindred.revokeControllers(ctx)); err != nil {
		return err
	}
	if err := errors.Join(s.upstream.removeClasses(ctx), s.kindred.removeClasses(ctx)); err != nil {
		return err
	}
	return errors.Join(s.upstream.prepare(ctx, theirs, documents), s.kindred.prepare(ctx, ours, documents))
}

// compareKinds runs every kind that Kindred serves, one after the other, because some objects
// (quotas, policies) affect requests for other kinds.
func (r *run) compareKinds(ctx context.Context, s sides, chosen []*resource, ours *catalog, manifests []manifest) ([]*trial, []score, error) {
	var trials []*trial
	var scores []score
	all := newSchemas(s.upstream)
	for _, kind := range chosen {
		served := ours.find(kind)
		if served == nil {
			scores = append(scores, score{Kind: kind.String(), Unserved: true})
			continue
		}
		began := time.Now()
		t, err := try(ctx, s, r.options, all, kind, manifests)
		if err != nil {
			return nil, nil, err
		}
		discovered := compareLists(aspectDiscovery, "", description(kind), description(served))
		sum := t.score()
		if len(discovered) > 0 {
			sum.Differing[aspectDiscovery] = len(discovered)
			t.outcomes = append(t.outcomes, outcome{pair: pair{ID: kind.String(), What: "discovery"}, Upstream: &answer{}, Kindred: &answer{}, Differences: discovered})
		}
		if len(t.variants) == 0 && kind.serves("create") {
			sum.Complaints = append(sum.Complaints, "there is no manifest")
		}
		trials, scores = append(trials, t), append(scores, sum)
		fmt.Printf("%-58s %5d requests in %4.1f s: %.2f %% agree\n", kind, sum.Requests, time.Since(began).Seconds(), sum.percent())
	}
	return trials, scores, nil
}

// conclude prints the results, and fails if a goal was set and missed.
func (r *run) conclude(trials []*trial, scores []score) error {
	classes := classify(trials)
	if r.show != nil {
		printMatching(os.Stdout, trials, r.show, r.shown, !r.matching)
	} else {
		printClasses(os.Stdout, classes, r.top)
	}
	printScores(os.Stdout, scores)
	if r.json != "" {
		if err := newReport(r.seed, trials, scores, classes).write(r.json); err != nil {
			return err
		}
	}
	var missed []string
	for _, s := range scores {
		if r.goal > 0 && s.misses(r.goal) {
			missed = append(missed, fmt.Sprintf("%s (%.2f %%)", s.Kind, s.percent()))
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("the goal of %g %% is missed by %s", r.goal, strings.Join(missed, ", "))
	}
	return nil
}

// misses reports whether a served kind is below the goal, or could not be tested completely.
func (s score) misses(goal float64) bool {
	return !s.Unserved && s.Requests > 0 && (s.percent() < goal || s.Blocked > 0)
}

// newReport returns a report with the requests whose responses differ.
func newReport(seed uint64, trials []*trial, scores []score, classes []*class) report {
	all := report{Seed: seed, Scores: scores, Classes: classes}
	for _, t := range trials {
		for i := range t.outcomes {
			if len(t.outcomes[i].Differences) > 0 {
				all.Outcomes = append(all.Outcomes, &t.outcomes[i])
			}
		}
	}
	return all
}

// printCatalog prints the resources that upstream serves.
func printCatalog(chosen []*resource, ours *catalog, manifests []manifest) {
	for _, r := range chosen {
		served := "served"
		if ours.find(r) == nil {
			served = "not served"
		}
		variants, bodies := of(manifests, r)
		fmt.Printf("%-58s %-11s %d manifests, %d bodies for subresources %v\n", r, served, len(variants), len(bodies), sortedKeys(r.subresources))
	}
}
