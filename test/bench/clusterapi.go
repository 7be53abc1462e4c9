// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kindred-project/kindred/internal/providers"
	"github.com/kindred-project/kindred/test/servers"
)

const (
	// machinesPerCluster are those of each Cluster: one of the control plane, the others workers.
	machinesPerCluster = 10
	// clustersLimit is the time that all Clusters may take to be Available, and to be gone.
	clustersLimit = 90 * time.Minute
	// enoughTimes is the multiple of Kindred's time after which upstream is stopped. Its results are lower bounds then, which is enough
	// to tell whether Kindred takes at most 0.6 of upstream's time.
	enoughTimes = 1.7
	// observePause is the time between two looks at the Clusters, and probePause between two requests whose time is measured. observeLimit is the
	// time that an overloaded server has for a look after the limits above.
	observePause = 2 * time.Second
	observeLimit = 5 * time.Minute
	probePause   = 50 * time.Millisecond
)

var (
	clusters = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
	machines = clusters.GroupVersion().WithResource("machines")
)

// clusterAPIResult is what Clusters cost a side.
type clusterAPIResult struct {
	// provisioned is the time until all Clusters are Available, or until the limit, and deleted the time until they are gone, likewise.
	provisioned, deleted time.Duration
	// processor is the processor time of the side, p99 that of the probe's requests, and memory the most resident memory in MB, in the time
	// of provisioned.
	processor, p99 time.Duration
	memory         float64
	load           string
}

// clustersTimes are the limits of the two phases.
type clustersTimes struct{ provision, remove time.Duration }

// clustersOfKindred provisions and deletes a number of Clusters with machines in memory on Kindred, and returns the seconds until all are Available.
func clustersOfKindred(count int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		programs, err := servers.BuildClusterAPI(ctx, "test/servers")
		if err != nil {
			return 0, err
		}
		ours, err := b.clustersOnKindred(ctx, programs, count)
		return ours.provisioned.Seconds(), err
	}
}

// clustersOnKindred measures Kindred's side. It is an error if not all Clusters become Available, or not all are gone in the end.
func (b *bench) clustersOnKindred(ctx context.Context, programs servers.ClusterAPI, count int) (clusterAPIResult, error) {
	ours, err := b.clustersOn(ctx, startKindred, programs, count, clustersTimes{clustersLimit, clustersLimit})
	if err == nil && (ours.provisioned >= clustersLimit || ours.deleted >= clustersLimit) {
		err = fmt.Errorf("the Clusters took longer than %v", clustersLimit)
	}
	return ours, err
}

// besideClusterAPI does the same on both sides, prints what that costs, and returns Kindred's share of upstream's time until all are Available.
// Upstream's side goes last, and is stopped when it has taken enoughTimes as long.
func besideClusterAPI(row string, count int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		programs, err := servers.BuildClusterAPI(ctx, "test/servers")
		if err != nil {
			return 0, err
		}
		ours, err := b.clustersOnKindred(ctx, programs, count)
		if err != nil {
			return 0, err
		}
		enough := clustersTimes{multiple(enoughTimes, ours.provisioned), multiple(enoughTimes, ours.deleted)}
		theirs, err := b.clustersOn(ctx, startUpstream, programs, count, enough)
		if err != nil {
			return 0, fmt.Errorf("upstream: %w", err)
		}
		var ratio float64
		for _, figure := range []struct {
			name         string
			ours, theirs float64
		}{
			{"-memory", ours.memory, theirs.memory},
			{"-p99", ours.p99.Seconds() * 1000, theirs.p99.Seconds() * 1000},
			{"-processor", ours.processor.Seconds(), theirs.processor.Seconds()},
			{"-delete", ours.deleted.Seconds(), theirs.deleted.Seconds()},
			{"", ours.provisioned.Seconds(), theirs.provisioned.Seconds()},
		} {
			ratio = share.of(figure.ours, figure.theirs)
			if err := b.remember(ctx, result{row + figure.name, figure.ours, figure.theirs, ratio, ours.load, theirs.load}); err != nil {
				return 0, err
			}
		}
		return ratio, nil
	}
}

func multiple(factor float64, d time.Duration) time.Duration {
	return time.Duration(factor * float64(d))
}

// clustersOn measures one side. What a limit ends is as long as the limit, and said on standard output.
func (b *bench) clustersOn(ctx context.Context, start starter, programs servers.ClusterAPI, count int, limits clustersTimes) (result clusterAPIResult, err error) {
	result.load = load()
	s, err := start(ctx, b, 0)
	if err != nil {
		return result, err
	}
	defer s.stop()
	m, err := startManagers(ctx, b, s, programs)
	if err != nil {
		return result, err
	}
	defer m.end()
	o, err := m.observe(ctx)
	if err != nil {
		return result, err
	}
	defer o.stop()
	available, used, began := 0, s.processorTime(), time.Now()
	err = s.profiled(ctx, func() error {
		if err := repeat(ctx, began.Add(limits.provision), func() error { return m.createClusters(ctx, programs.Templates, count) }); err != nil {
			return err
		}
		available, err = o.await(ctx, "Available", count, began.Add(limits.provision), countAvailable)
		return err
	})
	if err != nil {
		return result, err
	}
	result.provisioned, result.processor, result.memory = time.Since(began), s.processorTime()-used, o.peak
	result.p99 = o.p99()
	var made, withNode int
	err = repeat(ctx, time.Now().Add(observeLimit), func() (err error) {
		made, withNode, err = o.countMachines(ctx)
		return err
	})
	if err != nil {
		return result, err
	}
	managers, err := residentMemory(m.pids()...)
	if err != nil {
		return result, err
	}
	fmt.Printf("  %s: %d of %d Clusters Available after %.1f s, %d Machines, of which %d have a node; %.1f s of processor time; p99 of %d gets %s ms; at most %.0f MB; the managers %.0f MB (load before %s)\n",
		s.name, available, count, result.provisioned.Seconds(), made, withNode, result.processor.Seconds(), o.probes, millis(result.p99), result.memory, managers, result.load)
	if want := count * machinesPerCluster; available == count && (made != want || withNode != want) {
		return result, fmt.Errorf("%d Machines, %d of them with a node, and not %d", made, withNode, want)
	}
	began = time.Now()
	err = repeat(ctx, began.Add(limits.remove), func() error {
		return o.client.Resource(clusters).Namespace(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if err != nil { // of an overloaded server, after the limit
		fmt.Fprintf(os.Stderr, "  %s: the deletion is not answered: %v\n", s.name, err)
	}
	gone, err := o.await(ctx, "gone", count, began.Add(limits.remove), func(all []unstructured.Unstructured) int { return count - len(all) })
	result.deleted = time.Since(began)
	fmt.Printf("  %s: %d of %d Clusters gone after %.1f s\n", s.name, gone, count, result.deleted.Seconds())
	return result, err
}

// repeat sends a request until it succeeds, or returns its error after the deadline: an overloaded server refuses requests, or answers too late.
func repeat(ctx context.Context, deadline time.Time, request func() error) error {
	for {
		err := request()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		fmt.Fprintf(os.Stderr, "  again, because of an error: %v\n", err)
		pause(ctx, observePause)
	}
}

// createClusters applies a ClusterClass and Clusters of it, from upstream's examples.
func (m *managers) createClusters(ctx context.Context, templates string, count int) error {
	values := map[string]string{
		"NAMESPACE": metav1.NamespaceDefault, "KUBERNETES_VERSION": "v1.36.0",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": strconv.Itoa(machinesPerCluster - 1),
	}
	lookup := func(name string) string { return values[name] }
	class, err := os.ReadFile(filepath.Join(templates, "clusterclass-in-memory.yaml"))
	if err != nil {
		return err
	}
	if err := m.apply(ctx, string(class)); err != nil {
		return err
	}
	template, err := os.ReadFile(filepath.Join(templates, "cluster-template-in-memory.yaml"))
	if err != nil {
		return err
	}
	var all strings.Builder
	for i := range count {
		values["CLUSTER_NAME"] = fmt.Sprintf("c%d", i)
		cluster, err := providers.Substitute(string(template), lookup)
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "---\n%s\n", cluster)
	}
	return m.apply(ctx, all.String())
}

func (m *managers) pids() (all []int) {
	for _, p := range m.processes {
		all = append(all, p.Process.Pid)
	}
	return all
}

// observer looks at the Clusters of a side and at its memory, while a probe measures how long requests take.
type observer struct {
	*managers
	client dynamic.Interface
	peak   float64 // the most resident memory, in MB
	// stop ends the probe, which sends what it has measured.
	stop     context.CancelFunc
	measured chan []time.Duration
	probes   int
}

func (m *managers) observe(ctx context.Context) (*observer, error) {
	config := withOwnConnection(m.config)
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, "application/json", "application/json"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	probe, err := newClient(m.config)
	if err != nil {
		return nil, err
	}
	o := &observer{managers: m, client: client, measured: make(chan []time.Duration, 1)}
	ctx, o.stop = context.WithCancel(ctx)
	go func() {
		var took []time.Duration
		for ctx.Err() == nil {
			began := time.Now()
			_, err := probe.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
			if err == nil {
				took = append(took, time.Since(began))
			}
			pause(ctx, probePause)
		}
		o.measured <- took
	}()
	return o, nil
}

// p99 ends the probe and returns the 99th percentile of its requests.
func (o *observer) p99() time.Duration {
	o.stop()
	took := <-o.measured
	if o.probes = len(took); o.probes == 0 {
		return 0
	}
	return percentiles(took)[1]
}

// await waits until a number of Clusters are in a state, which count counts, or until the deadline. It returns how many are, and prints that
// twice a minute.
func (o *observer) await(ctx context.Context, state string, want int, deadline time.Time, count func([]unstructured.Unstructured) int) (have int, err error) {
	began, said := time.Now(), time.Now()
	for {
		var all *unstructured.UnstructuredList
		err := repeat(ctx, deadline.Add(observeLimit), func() (err error) {
			all, err = o.client.Resource(clusters).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			return err
		})
		if err != nil {
			return 0, err
		}
		resident, err := o.memory()
		if err != nil {
			return 0, err
		}
		o.peak = max(o.peak, resident)
		have := count(all.Items)
		if have == want || time.Now().After(deadline) {
			return have, nil
		}
		if time.Since(said) > 30*time.Second {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "  %s: %d of %d Clusters are %s after %.0f s; at most %.0f MB\n", o.name, have, want, state, time.Since(began).Seconds(), o.peak)
		}
		pause(ctx, observePause)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// countAvailable returns how many Clusters are Available.
func countAvailable(all []unstructured.Unstructured) (available int) {
	for _, cluster := range all {
		conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
		if slices.ContainsFunc(conditions, func(c any) bool {
			condition := c.(map[string]any)
			return condition["type"] == "Available" && condition["status"] == "True"
		}) {
			available++
		}
	}
	return available
}

// countMachines returns how many Machines there are, and how many of them have a node.
func (o *observer) countMachines(ctx context.Context) (made, withNode int, err error) {
	all, err := o.client.Resource(machines).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	for _, machine := range all.Items {
		if name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name"); name != "" {
			withNode++
		}
	}
	return len(all.Items), withNode, nil
}
