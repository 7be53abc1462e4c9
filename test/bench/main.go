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
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// bench is the configuration of a run, which all figures use.
type bench struct {
	binary string
	// scratch is the directory for data directories and images.
	scratch string
	// profiles are the files for the server's profiles, by the name of the profile. A profile with
	// an empty file name is not written.
	profiles map[string]string
	// history is the file to which results beside upstream are appended; none if it is empty.
	history string
	// profileSeconds is the length of the profiles, from the start of the measured time.
	profileSeconds int
}

// figure is one line of the table.
type figure struct {
	name, what string
	unit       string
	target     float64
	// atLeast is set if a higher result is better.
	atLeast bool
	// long is set if the figure takes more than ten minutes. It is measured only if -run is given.
	long    bool
	measure func(context.Context, *bench) (float64, error)
}

// latency selects the table of latencies, which is not a figure, in -run.
const latency = "latency"

func figures() []figure {
	return slices.Concat([]figure{
		{name: "start", what: "process start to ready, median of 5", unit: "s", target: 1, measure: startTime},
		{name: "memory", what: "RSS 30 s idle, one real node", unit: "MB", target: 250, measure: idleMemory},
		{name: "memory-loaded", what: "RSS after a load of objects, pods and collections", unit: "MB", target: 800, measure: ofKindred(loaded)},
		{name: "memory-sizes", what: "RSS of 1,000 nodes and 100,000 objects", unit: "MB", target: 1000, measure: sizes},
		{name: "create-configmaps", what: "ConfigMap creates over HTTPS, 32 clients", unit: "/s", target: 2500, atLeast: true, measure: ofKindred(creating(createConfigMap, 1))},
		{name: "create-pods", what: "Pod creates over HTTPS, 32 clients", unit: "/s", target: 1500, atLeast: true, measure: ofKindred(creating(createUnscheduled, 1))},
		{name: "scale", what: "Deployment 0 to 300 Running, 20 simulated nodes", unit: "s", target: 0.6, measure: ofKindred(scaling)},
		{name: "scale-2000", what: "Deployment 0 to 2,000 Running", unit: "s", target: 4, measure: ofKindred(scalingMany)},
		{name: "scale-100-nodes", what: "Deployment 0 to 1,000 Running, beside 2,000 pods on 100 nodes", unit: "s", target: 15, measure: large(100)},
		{name: "scale-1000-nodes", what: "Deployment 0 to 1,000 Running, beside 20,000 pods on 1,000 nodes", unit: "s", target: 15, measure: large(1_000)},
		{name: "scale-5000-nodes", what: "Deployment 0 to 1,000 Running, beside 100,000 pods on 5,000 nodes", unit: "s", target: 15, measure: large(5_000)},
		{name: "delete-2000", what: "deletion of these 2,000, until all are gone", unit: "s", target: 1.5, measure: ofKindred(deletingMany)},
		{name: "rollout", what: "rolling update of 300 pods, maxSurge 25 %", unit: "s", target: 2.5, measure: ofKindred(rollingOut)},
		{name: "job", what: "Job of 1,000 completions, parallelism 100", unit: "s", target: 5, measure: ofKindred(runningJob)},
		{name: "statefulset", what: "StatefulSet of 100 pods in parallel, until Running", unit: "s", target: 1, measure: ofKindred(startingSet)},
		{name: "cronjobs", what: "1,000 CronJobs due in the same second, all started", unit: "s", target: 3, measure: ofKindred(schedulingJobs(20))},
		{name: "collect", what: "background collection of 5,000 dependents", unit: "/s", target: 4000, atLeast: true, measure: ofKindred(collect(background, dependents, 1))},
		{name: "collect-foreground", what: "foreground collection of 5,000 dependents", unit: "/s", target: 3000, atLeast: true, measure: ofKindred(collect(foreground, dependents, 1))},
		{name: "collect-100000", what: "background collection of 100,000 dependents", unit: "/s", target: 3200, atLeast: true, measure: ofKindred(collect(background, 20*dependents, 1))},
		{name: "collect-flat", what: "background collection of 11,110 dependents", unit: "/s", target: 4000, atLeast: true, measure: ofKindred(collect(background, inTree, 1))},
		{name: "collect-tree", what: "as many, as a tree 10 wide and 4 deep", unit: "/s", target: 4000, atLeast: true, measure: ofKindred(collect(background, inTree, deep))},
		{name: "yielding", what: "p99 of 200 requests/s during a collection of 50,000, ÷", unit: "", target: 1.25, measure: yielding},
		{name: "undelete", what: "undeletion of an owner with 5,000 dependents", unit: "s", target: 15, measure: undelete(dependents)},
		{name: "undelete-100000", what: "undeletion of an owner with 100,000 dependents", unit: "s", target: 300, measure: undelete(20 * dependents)},
		{name: "undelete-list", what: "list of 5,000 deletions that can be undone", unit: "s", target: 1, measure: undeleteList},
		{name: "pod-start", what: "real pod, create to Ready, median of 20", unit: "s", target: 0.25, measure: podStart},
		{name: "pod-start-policies", what: "the same in a cluster with NetworkPolicies", unit: "s", target: 0.25, measure: podStartWithPolicies},
		{name: "first-packet", what: "readiness of an endpoint to the first packet, p50 of 100", unit: "ms", target: 50, measure: firstPacket(0)},
		{name: "first-packet-p99", what: "the same, p99", unit: "ms", target: 150, measure: firstPacket(1)},
		{name: "slice", what: "readiness of an endpoint to its EndpointSlice, p99 of 100", unit: "ms", target: 50, measure: sliceFollows},
		{name: "cluster-ip", what: "TCP through a ClusterIP, ÷ to the pod's own address", unit: "", target: 0.95, atLeast: true, measure: clusterIPThroughput},
		{name: "dns", what: "DNS answers per second of processor time, 10,000 Services", unit: "/s", target: 20000, atLeast: true, measure: dnsAnswers},
		{name: "dns-p99", what: "p99 of a DNS query at 2,000/s, 10,000 Services", unit: "ms", target: 2, measure: dnsLatency},
		{name: "services-upstream", what: "10,000 Services from process start, kube-proxy ÷", unit: "", target: 3, atLeast: true, measure: besideKubeProxy("services-upstream", loads, loadTime)},
		{name: "service-change-upstream", what: "change of one of them, kube-proxy ÷", unit: "", target: 3, atLeast: true, measure: besideKubeProxy("service-change-upstream", 1, changeTimes)},
		{name: "policies", what: "1,000 NetworkPolicies over 500 pods of a node, compiled and loaded", unit: "s", target: 1, measure: policies("BenchmarkKernel/load/500$", 5)},
		{name: "policies-change", what: "change of one of them", unit: "ms", target: 20, measure: inMilliseconds(policies("BenchmarkKernel/policy/500$", 100))},
		{name: "claim", what: "claim and real pod, create to Ready, median of 20", unit: "s", target: 0.3, measure: claimToReady},
		{name: "pod-stop", what: "real pod that obeys TERM, delete to gone, median of 20", unit: "s", target: 0.3, measure: podStop},
		{name: "pod-start-runtime", what: "real pod, create to Ready, ÷ the same CRI calls", unit: "", target: 1.15, measure: podBesideRuntime(startOf, "create to Ready")},
		{name: "pod-stop-runtime", what: "real pod, delete to gone, ÷ the same CRI calls", unit: "", target: 1.15, measure: podBesideRuntime(stopOf, "delete to gone")},
		{name: "pods-100-runtime", what: "100 real pods at once, all Ready, ÷ the same CRI calls", unit: "", target: 1.25, measure: manyBesideRuntime},
		{name: "probes-processor", what: "110 pods with a probe each second, share of a core", unit: "%", target: 5, measure: probesProcessor},
		{name: "probes-memory", what: "the same, memory", unit: "MB", target: 25, measure: probesMemory},
		{name: "workload-cluster", what: "workload cluster of 1 + 2 machines, apply to a pod Ready on each, median of 3", unit: "s", target: 10, measure: workloadCluster},
		{name: "clusters-20", what: "20 Clusters of 10 machines of Cluster API, until Available", unit: "s", target: 150, measure: clustersOfKindred(20)},
		{name: "clusters-200", what: "200 Clusters of 10 machines of Cluster API, until Available", unit: "s", target: 1500, long: true, measure: clustersOfKindred(200)},
		{name: "summary", what: "/stats/summary of 110 pods", unit: "ms", target: 50, measure: summaryLatency},
	}, besideUpstream())
}

// besideUpstream are the figures that compare Kindred with upstream's control plane.
func besideUpstream() []figure {
	var all []figure
	add := func(name, what string, target float64, w work, compare comparison) {
		f := figure{name: "beside-" + name, what: what, target: target, atLeast: compare.isGain, measure: beside("beside-"+name, w, compare)}
		all = append(all, f)
	}
	add("start", "start to ready, 20 simulated nodes, share of upstream's", 0.13, starting, share)
	add("memory", "memory 30 s idle, share of upstream's", 0.25, resting, share)
	add("memory-loaded", "memory after a load, share of upstream's", 0.5, loaded, share)
	add("create-configmaps", "ConfigMaps created, 32 clients, times upstream's", 3, creating(createConfigMap, 20), more)
	add("running-pods", "4,000 pods created by 32 clients, Running on 50 nodes, times upstream's", 3, creatingRunning, more)
	add("scale", "Deployment 0 to 300 Running, times as fast", 6, scaling, faster)
	add("scale-2000", "Deployment 0 to 2,000 Running, times as fast", 6, scalingMany, faster)
	add("delete", "deletion of 300 pods, times as fast", 4, deleting, faster)
	add("delete-2000", "deletion of 2,000 pods, times as fast", 8, deletingMany, faster)
	add("tree", "tree of 1,110 collected, times upstream's", 10, collect(background, inShallowTree, shallow), more)
	add("collect", "5,000 dependents collected, times upstream's", 2, collect(background, dependents, 1), more)
	add("watch", "events of 100 watches, times upstream's", 3, watching, more)
	add("list-500", "list of 500, median, share of upstream's", 0.7, listing(someCount), share)
	add("list-10000", "list of 10,000, median, share of upstream's", 0.7, listing(manyCount), share)
	add("rollout", "rolling update of 300 pods, times as fast", 1, rollingOut, faster)
	add("job", "Job of 1,000 completions, times as fast", 1, runningJob, faster)
	add("statefulset", "StatefulSet of 100 pods, times as fast", 1, startingSet, faster)
	add("cronjobs", "1,000 CronJobs due in the same second, times as fast", 1, schedulingJobs(20), faster)
	for _, count := range []int{20, 200} {
		name := fmt.Sprintf("clusters-%d-upstream", count)
		all = append(all, figure{
			name: name, what: fmt.Sprintf("%d Clusters of Cluster API, until Available, share of upstream's", count), target: 0.6, long: true, measure: besideClusterAPI(name, count),
		})
	}
	return all
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	binary := flag.String("kindred", "bin/kindred", "the binary to measure; \"make build\" makes it")
	only := flag.String("run", "", "measure only figures whose name matches this regular expression (default all but those that take more than ten minutes)")
	times := flag.Int("times", 1, "how often each figure is measured; the table shows every result")
	dir := flag.String("dir", "", "where data directories are made (default the system's temporary directory)")
	allocProfile := flag.String("allocprofile", "", "write the server's profile of what it allocated in the measured time to this file")
	heapProfile := flag.String("heapprofile", "", "write the server's profile of what it holds in memory at the start of the measured time to this file")
	cpuProfile := flag.String("cpuprofile", "", "write the server's CPU profile of the measured time to this file; choose one figure with -run")
	// Idle time at the end does not change a CPU profile.
	profileSeconds := flag.Int("profileseconds", 5, "the length of the profiles; most figures take about 5 s, and the probes 60 s")
	measure := flag.String("measure", "", "measure one figure and print its value only, for the figures that this program measures as another process")
	proxy := flag.String("proxy", "", "route Services with this kubeconfig, as a process of its own, for the figures beside kube-proxy")
	history := flag.String("history", "", "append the results of figures beside upstream to this file")
	list := flag.Bool("list", false, "list the figures and exit")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *proxy != "" {
		return runProxy(ctx, *proxy)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	selected := slices.DeleteFunc(figures(), func(f figure) bool { return !pattern.MatchString(f.name) || f.long && *only == "" })
	if *list {
		for _, f := range figures() {
			fmt.Printf("%-18s %s\n", f.name, f.what)
		}
		fmt.Printf("%-18s %s\n", latency, "p50 and p99 of single requests, compared with upstream's kube-apiserver")
		return nil
	}
	b := &bench{profiles: map[string]string{"profile": *cpuProfile, "allocs": *allocProfile, "heap": *heapProfile}, history: *history, profileSeconds: *profileSeconds}
	if b.binary, err = filepath.Abs(*binary); err != nil {
		return err
	}
	if _, err := os.Stat(b.binary); err != nil {
		return fmt.Errorf("no binary to measure: %w; run \"make build\", or name one with -kindred", err)
	}
	if b.scratch, err = os.MkdirTemp(*dir, "kindred-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	if *measure != "" {
		return b.measureOnly(ctx, *measure)
	}
	if len(selected) > 0 {
		err = b.table(ctx, selected, *times)
	}
	if pattern.MatchString(latency) {
		err = errors.Join(err, b.latencies(ctx))
	}
	return err
}

// table measures the figures and prints each at once. A figure that fails does not affect the
// others.
func (b *bench) table(ctx context.Context, selected []figure, times int) error {
	fmt.Printf("%d processors, load %s\n\n", runtime.NumCPU(), load())
	const row = "%-56s %12s  %s\n"
	fmt.Printf(row, "figure", "target", "result (load before)")
	var failed []error
	for _, f := range selected {
		var results []string
		for range times {
			before := load()
			value, err := f.measure(ctx, b)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", f.name, err))
				results = append(results, "failed")
				continue
			}
			results = append(results, fmt.Sprintf("%s (%s)", f.format(value), before))
		}
		fmt.Printf(row, f.what, f.bound(), strings.Join(results, ", "))
	}
	return errors.Join(failed...)
}

func (f figure) bound() string {
	sign := "≤ "
	if f.atLeast {
		sign = "≥ "
	}
	return sign + f.format(f.target)
}

func (f figure) format(value float64) string {
	switch f.unit {
	case "":
		return fmt.Sprintf("%.2f", value)
	case "s":
		return fmt.Sprintf("%.2f s", value)
	case "ms":
		return fmt.Sprintf("%.1f ms", value)
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %s", value, f.unit))
}

// load returns the load average of the last minute.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	average, _, _ := strings.Cut(string(content), " ")
	return average
}
