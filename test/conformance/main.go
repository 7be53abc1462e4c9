// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
	"github.com/kindred-project/kindred/test/servers"
)

const defaultBinary = "../../bin/kindred"

// run has the settings of the flags.
type run struct {
	selection
	suite       string
	binary, dir string
	against     string
	runtime     string
	simulated   int
	servers     int
	two         bool
	every       bool
	processes   int
	repeat      int
	record      bool
	out         string
}

func main() {
	if filepath.Base(os.Args[0]) == systemctl {
		if err := actAsSystemctl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if isInit() {
		status, err := actAsInit()
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance: process 1:", err)
			status = 1
		}
		os.Exit(status)
	}
	if err := realMain(); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
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
	if !isIsolated() {
		// A second interrupt ends the process immediately. One in the namespaces gets an interrupt of the terminal twice: from the
		// kernel, and from the process outside.
		context.AfterFunc(ctx, stop)
	} else {
		if err := furnish(); err != nil {
			return err
		}
	}
	return r.run(ctx)
}

func parse() (*run, error) {
	r := &run{}
	flag.StringVar(&r.binary, "kindred", defaultBinary, "the binary to test; \"make build\" makes it")
	flag.StringVar(&r.dir, "dir", ".", "the directory of this module: what it builds is kept in its bin")
	flag.StringVar(&r.suite, "suite", clusterSuite, "which of upstream's suites to run: that of a cluster, or that of a node's agent")
	flag.StringVar(&r.focus, "focus", "", "run the specs whose names match this regular expression")
	flag.StringVar(&r.skip, "skip", "", "but not those that match this one")
	flag.StringVar(&r.file, "specs", "", "run the specs that this file lists")
	flag.BoolVar(&r.every, "all", false, "choose from all specs of the suite, not only the conformance specs; nothing is recorded")
	flag.StringVar(&r.against, "against", "kindred", "what to test: kindred, or upstream's own control plane and kubelet")
	flag.StringVar(&r.runtime, "runtime", "built", "the node's containerd: built from its module, or that of the system")
	flag.IntVar(&r.simulated, "simulated-nodes", 0, "test so many simulated nodes instead of a real one")
	flag.BoolVar(&r.two, "two-nodes", true, "test two real nodes, the second one in a network namespace; without, one")
	flag.IntVar(&r.servers, "servers", 1, "test a cluster of so many servers, each with an embedded etcd; those after the first run in network namespaces")
	flag.IntVar(&r.processes, "nodes", 4, "how many specs run at a time")
	flag.IntVar(&r.repeat, "repeat", 1, "run the specs so many times")
	flag.BoolVar(&r.record, "record", true, "record the results and rewrite docs/conformance.md; nothing is recorded for the system's runtime or another binary")
	flag.StringVar(&r.out, "out", "", "the folder for reports and logs (default a new one in out/)")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case r.suite != clusterSuite && r.suite != nodeSuite:
		return nil, fmt.Errorf("SUITE is cluster or node, not %q", r.suite)
	case r.suite == nodeSuite && (r.against != "kindred" || r.simulated > 0):
		return nil, errors.New("the suite of node agents runs on a real node of Kindred")
	case r.against != "kindred" && r.against != "upstream":
		return nil, fmt.Errorf("AGAINST is kindred or upstream, not %q", r.against)
	case r.runtime != "built" && r.runtime != "system":
		return nil, fmt.Errorf("RUNTIME is built or system, not %q", r.runtime)
	case r.processes < 1 || r.repeat < 1:
		return nil, errors.New("NODES and REPEAT are at least 1")
	case r.simulated > 0 && r.against != "kindred":
		return nil, errors.New("only Kindred has simulated nodes")
	case r.servers > 1 && (r.against != "kindred" || r.suite != clusterSuite || !r.two || r.simulated > 0):
		return nil, errors.New("several servers of Kindred are tested with two real nodes, by the suite of a cluster")
	case r.servers < 1 || r.servers > 9:
		return nil, errors.New("there are 1 to 9 servers")
	}
	// The page shows the results of a commit with the runtime that it names.
	r.record = r.record && !r.every && r.runtime == "built" && r.binary == defaultBinary
	return r, nil
}

func (r *run) run(ctx context.Context) error {
	kubernetes, err := findKubernetes(ctx, r.dir)
	if err != nil {
		return err
	}
	all, err := conformanceSpecs(kubernetes.Dir)
	if err != nil {
		return err
	}
	candidates := all
	if r.every || r.suite == nodeSuite {
		if candidates, err = r.suiteSpecs(ctx); err != nil {
			return err
		}
	}
	specs, err := r.of(candidates)
	if err != nil {
		return err
	}
	if r.out == "" {
		r.out = filepath.Join(r.dir, "out", time.Now().Format("20060102-150405"))
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	commit, err := commitOf(ctx, r.dir)
	if err != nil {
		return err
	}
	if r.suite == nodeSuite && !isIsolated() {
		// In the namespaces, there is no network to build from.
		if _, err := r.build(ctx); err != nil {
			return err
		}
		return isolate(ctx)
	}
	// Results count even if a later step fails.
	results, err := r.test(ctx, specs)
	if len(results) == 0 {
		return fmt.Errorf("%w; what there is of reports and logs is in %s", err, r.out)
	}
	printTable(os.Stdout, results)
	fmt.Println("\nreports and logs:", r.out)
	if r.record {
		err = errors.Join(err, r.writeDown(all, candidates, kubernetes, results, commit))
	}
	if t := tallyOf(results); t[passed] < len(specs) {
		err = errors.Join(err, fmt.Errorf("%d of %d specs failed, %d did not run", t[failed], len(specs), t[notRun]))
	}
	return err
}

// built is what a run needs.
type built struct {
	programs programs
	system   system
	images   []suiteimages.Archive
}

func (r *run) build(ctx context.Context) (b built, err error) {
	bin := filepath.Join(r.dir, "bin")
	if b.programs, err = buildPrograms(ctx, r.dir, bin, r.suite); err != nil {
		return built{}, err
	}
	if b.system, err = r.system(ctx, bin); err != nil {
		return built{}, err
	}
	images := &suiteimages.Builder{Dir: filepath.Join(bin, "images"), Module: r.dir, Progress: os.Stdout}
	b.images, err = images.Build(ctx)
	return b, err
}

// test starts the cluster, runs the specs the requested number of times, and always stops the
// cluster.
func (r *run) test(ctx context.Context, specs []string) (results []result, err error) {
	b, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	// The path of a socket must be short, so the cluster is not below the directory of reports.
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	cluster, err := b.system.start(ctx, dir)
	defer func() {
		logs, stopped := cluster.stop()
		err = errors.Join(err, r.keep(logs))
		if stopped != nil {
			err = errors.Join(err, fmt.Errorf("what is left of the cluster is in %s: %w", dir, stopped))
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err != nil {
		return nil, err
	}
	if err := cluster.load(ctx, b.images); err != nil {
		return nil, err
	}
	if r.suite == clusterSuite {
		if err := awaitNodes(ctx, cluster.kubeconfig); err != nil {
			return nil, err
		}
	}
	stopMirror, err := mirror(b.images, cluster.mirror, cluster.hosts)
	if err != nil {
		return nil, err
	}
	defer stopMirror()
	if cluster.dir != "" {
		// Ginkgo runs a suite in the directory of its program.
		program := filepath.Join(cluster.dir, filepath.Base(b.programs.suite))
		if err := linkProgram(b.programs.suite, program); err != nil {
			return nil, err
		}
		b.programs.suite = program
	}
	var runs [][]result
	for i := range r.repeat {
		out := r.out
		if r.repeat > 1 {
			fmt.Printf("run %d of %d\n", i+1, r.repeat)
			out = filepath.Join(r.out, fmt.Sprintf("run-%d", i+1))
		}
		flags := cluster.flags
		if r.suite == clusterSuite {
			flags = clusterFlags(cluster.kubeconfig, b.programs.kubectl, out)
		}
		s := suite{programs: b.programs, env: cluster.env, flags: flags, processes: r.processes, out: out}
		results, err := s.run(ctx, specs)
		if err != nil {
			return nil, err
		}
		runs = append(runs, results)
		if ctx.Err() != nil {
			break
		}
	}
	return worst(runs), nil
}

func linkProgram(from, to string) error {
	target, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

// system is a system under test.
type system interface {
	// start returns a cluster that must be stopped, even if it returns an error.
	start(ctx context.Context, dir string) (cluster, error)
}

func (r *run) system(ctx context.Context, bin string) (system, error) {
	containerd := ""
	if r.runtime == "built" && r.simulated == 0 {
		var err error
		if containerd, err = servers.BuildContainerd(ctx, filepath.Join(r.dir, "containerd"), bin); err != nil {
			return nil, err
		}
	}
	if r.against == "upstream" {
		return buildUpstream(ctx, r.dir, containerd)
	}
	k := kindred{binary: r.binary, containerd: containerd, simulated: r.simulated}
	if r.suite == nodeSuite {
		return nodeCluster{k}, nil
	}
	if !r.two || r.simulated > 0 {
		return k, nil
	}
	k.second = &servers.SecondNode{}
	for number := 2; number <= r.servers; number++ {
		k.members = append(k.members, &servers.Member{Number: number})
	}
	return k, nil
}

// keep copies the cluster's logs to the directory of reports.
func (r *run) keep(logs []string) error {
	var failed []error
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.out, filepath.Base(log)), content, 0o644)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// writeDown adds the results to the record and writes docs/conformance.md. candidates are all specs of the suite.
func (r *run) writeDown(all, candidates []string, kubernetes module, results []result, commit string) error {
	kindred, upstream, node := filepath.Join(r.dir, "results.json"), filepath.Join(r.dir, "results-upstream.json"), filepath.Join(r.dir, "results-node.json")
	ours, err := readRecord(kindred)
	if err != nil {
		return err
	}
	theirs, err := readRecord(upstream)
	if err != nil {
		return err
	}
	agents, err := readRecord(node)
	if err != nil {
		return err
	}
	why, err := readCauses(filepath.Join(r.dir, "causes.yaml"), slices.Concat(all, agents.specs()))
	if err != nil {
		return err
	}
	switch {
	case r.suite == nodeSuite:
		agents.addSuite(results, candidates, commit)
		err = agents.write(node)
	case r.against == "upstream":
		theirs.add(results, "", "")
		err = theirs.write(upstream)
	case r.servers > 1:
		ours.add(results, commit, fmt.Sprintf("%d servers", r.servers))
		err = ours.write(kindred)
	case r.simulated > 0:
		ours.add(results, commit, fmt.Sprintf("%d simulated nodes", r.simulated))
		err = ours.write(kindred)
	default:
		ours.add(results, commit, "")
		err = ours.write(kindred)
	}
	return errors.Join(err,
		os.WriteFile(filepath.Join(r.dir, "../../docs/conformance.md"), page(kubernetes.Version, all, ours, theirs, agents, why), 0o644))
}

// commitOf returns the current commit, with "-dirty" if files other than those that a run writes
// have changed.
func commitOf(ctx context.Context, dir string) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", filepath.Join(dir, "../..")}, args...)...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	commit, err := git("rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git("status", "--porcelain", "--", ".",
		":!docs/conformance.md", ":!test/conformance/results*.json", ":!test/conformance/causes.yaml", ":!test/conformance/smoke.txt")
	if changed != "" {
		commit += "-dirty"
	}
	return commit, err
}
