// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/servers"
)

// rounds is the number of times that the two servers alternate for an operation, so that the load of the machine
// affects both.
const rounds = 5

// Namespaces of the objects that operations read, and how many objects each has.
const (
	some, many = "some", "many"
	someCount  = 500
	manyCount  = 10_000
)

// caller is a client of one server that sends one request at a time.
type caller struct {
	kubernetes.Interface
	watch watch.Interface
	// calls counts the calls, so that each one writes new content.
	calls int
}

// operation is a request whose duration is measured.
type operation struct {
	name string
	// samples is the number of calls in each round.
	samples int
	do      func(context.Context, *caller) error
}

// operations returns the operations in the order in which they run: each leaves the objects that
// the next one needs.
func operations() []operation {
	return []operation{
		{"get", 400, func(ctx context.Context, c *caller) error {
			_, err := c.in(some).Get(ctx, fmt.Sprintf("c%d", c.calls%someCount), metav1.GetOptions{})
			return err
		}},
		{"list of 500", 60, list(some, someCount)},
		{"list of 10,000", 6, list(many, manyCount)},
		{"create", 300, func(ctx context.Context, c *caller) error {
			_, err := c.in(metav1.NamespaceDefault).Create(ctx, configMap(c.name()), metav1.CreateOptions{})
			return err
		}},
		{"update", 300, func(ctx context.Context, c *caller) error {
			_, err := c.in(metav1.NamespaceDefault).Update(ctx, c.changed(), metav1.UpdateOptions{})
			return err
		}},
		{"apply", 300, func(ctx context.Context, c *caller) error {
			change := corev1ac.ConfigMap("applied", metav1.NamespaceDefault).WithData(c.changed().Data)
			_, err := c.in(metav1.NamespaceDefault).Apply(ctx, change, metav1.ApplyOptions{FieldManager: "bench"})
			return err
		}},
		{"update, until its watch event", 300, updateAndWatch},
	}
}

func (c *caller) in(namespace string) typed.ConfigMapInterface {
	return c.CoreV1().ConfigMaps(namespace)
}

func (c *caller) name() string { return fmt.Sprintf("n%d", c.calls) }

// changed returns the ConfigMap "written" with new content.
func (c *caller) changed() *corev1.ConfigMap {
	object := configMap("written")
	object.Data["key"] = c.name()
	return object
}

func list(namespace string, count int) func(context.Context, *caller) error {
	return func(ctx context.Context, c *caller) error {
		got, err := c.in(namespace).List(ctx, metav1.ListOptions{})
		// The cluster may add one of its own: kube-root-ca.crt.
		if err == nil && len(got.Items) < count {
			err = fmt.Errorf("the list of %s has %d items, not %d", namespace, len(got.Items), count)
		}
		return err
	}
}

// updateAndWatch writes an object and waits for the event of the write, on a watch over another
// connection.
func updateAndWatch(ctx context.Context, c *caller) error {
	written, err := c.in(metav1.NamespaceDefault).Update(ctx, c.changed(), metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-c.watch.ResultChan():
			if !ok {
				return errors.New("the watch has ended")
			}
			if object, is := e.Object.(*corev1.ConfigMap); is && object.ResourceVersion == written.ResourceVersion {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// latencies measures the latencies of single requests to Kindred and to upstream's API server, and
// prints both.
func (b *bench) latencies(ctx context.Context) error {
	both, stop, err := b.startBoth(ctx)
	defer stop()
	if err != nil {
		return err
	}
	const row = "%-28s %10s %10s %10s %10s %7s %7s\n"
	fmt.Printf("\n"+row, "one client, ms", "p50", "p99", "upstream", "p99", "p50 ÷", "p99 ÷")
	for _, o := range operations() {
		ours, theirs, err := o.takeTurns(ctx, both[0], both[1])
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		a, b := percentiles(ours), percentiles(theirs)
		fmt.Printf(row, o.name, millis(a[0]), millis(a[1]), millis(b[0]), millis(b[1]), ratio(a[0], b[0]), ratio(a[1], b[1]))
	}
	return nil
}

// startBoth starts Kindred and upstream's API server with its etcd, and creates the same objects in
// both. Both fsync before they acknowledge a write.
func (b *bench) startBoth(ctx context.Context) (both []*caller, stop func(), err error) {
	var running []*servers.Server
	stop = func() {
		for _, s := range running {
			s.Stop()
		}
	}
	upstream, err := servers.BuildUpstream(ctx, "test/servers")
	if err != nil {
		return nil, stop, err
	}
	dir, err := os.MkdirTemp(b.scratch, "latency")
	if err != nil {
		return nil, stop, err
	}
	for _, start := range []func() (*servers.Server, error){
		func() (*servers.Server, error) {
			return servers.Kindred{Binary: b.binary, Args: []string{"--no-node", "--simulated-nodes", "1"}}.Start(ctx, filepath.Join(dir, "kindred"))
		},
		func() (*servers.Server, error) { return upstream.Start(ctx, filepath.Join(dir, "upstream"), true) },
	} {
		server, err := start()
		if err != nil {
			return nil, stop, err
		}
		running = append(running, server)
		c, err := newCaller(ctx, server.Config)
		if err != nil {
			return nil, stop, fmt.Errorf("%s: %w", server.Name, err)
		}
		both = append(both, c)
	}
	return both, stop, nil
}

// newCaller creates the objects on a server and connects to it.
func newCaller(ctx context.Context, config *rest.Config) (*caller, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.Timeout = 0 // a watch has no timeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &caller{Interface: client}
	for namespace, count := range map[string]int{some: someCount, many: manyCount} {
		if err := fill(ctx, c, namespace, count); err != nil {
			return nil, err
		}
	}
	if _, err := c.in(metav1.NamespaceDefault).Create(ctx, configMap("written"), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	watcher, err := kubernetes.NewForConfig(withOwnConnection(config))
	if err != nil {
		return nil, err
	}
	c.watch, err = watcher.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=written"})
	return c, err
}

// takeTurns measures an operation on both servers alternately. The first round is a warm-up and
// does not count.
func (o operation) takeTurns(ctx context.Context, ours, theirs *caller) (a, b []time.Duration, err error) {
	for round := range rounds + 1 {
		for _, side := range []struct {
			*caller
			took *[]time.Duration
		}{{ours, &a}, {theirs, &b}} {
			took, err := o.measure(ctx, side.caller)
			if err != nil {
				return nil, nil, err
			}
			if round > 0 {
				*side.took = append(*side.took, took...)
			}
		}
	}
	return a, b, nil
}

func (o operation) measure(ctx context.Context, c *caller) ([]time.Duration, error) {
	var took []time.Duration
	for range o.samples {
		c.calls++
		began := time.Now()
		if err := o.do(ctx, c); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// percentiles returns the 50th and 99th percentile.
func percentiles(took []time.Duration) [2]time.Duration {
	slices.Sort(took)
	return [2]time.Duration{took[len(took)/2], took[len(took)*99/100]}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) }

func ratio(ours, theirs time.Duration) string {
	return fmt.Sprintf("%.2f", ours.Seconds()/theirs.Seconds())
}
