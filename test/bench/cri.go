// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"

	"github.com/kindred-project/kindred/test/servers"
)

// manyPods is how many pods are started at once, and nearly all that a node takes.
const manyPods = 100

// podBesideRuntime returns the figure of one of the two times of [pairOf]: what a pod takes, divided by what the runtime takes
// for the same calls.
func podBesideRuntime(of func(pair) time.Duration, what string) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		pods, calls, err := besideRuntime(ctx, b)
		if err != nil {
			return 0, err
		}
		pod, call := median(times(pods, of)), median(times(calls, of))
		fmt.Printf("  %s: pod %v, CRI calls %v, medians of %d in turns\n", what, pod.Round(time.Millisecond), call.Round(time.Millisecond), podRuns)
		return float64(pod) / float64(call), nil
	}
}

// pair is how long a start and a stop took.
type pair struct{ start, stop time.Duration }

func startOf(p pair) time.Duration { return p.start }

func stopOf(p pair) time.Duration { return p.stop }

func times(pairs []pair, of func(pair) time.Duration) (all []time.Duration) {
	for _, p := range pairs {
		all = append(all, of(p))
	}
	return all
}

// besideRuntime starts and stops pods and, in turns, the same sandboxes and containers by CRI calls alone.
func besideRuntime(ctx context.Context, b *bench) (pods, calls []pair, err error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.stop()
	runtime, err := c.runtime(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	err = c.profiled(ctx, func() error {
		for i := range podRuns {
			start, stop, err := onePod(ctx, client, fmt.Sprintf("pod-%d", i))
			if err != nil {
				return err
			}
			call, err := runtime.one(ctx, fmt.Sprintf("call-%d", i))
			if err != nil {
				return err
			}
			pods, calls = append(pods, pair{start, stop}), append(calls, call)
		}
		return nil
	})
	return pods, calls, err
}

// manyBesideRuntime measures the start of many pods at once, divided by that of as many sandboxes and containers.
func manyBesideRuntime(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	runtime, err := c.runtime(ctx, client)
	if err != nil {
		return 0, err
	}
	call, err := runtime.many(ctx, manyPods)
	if err != nil {
		return 0, err
	}
	var pods time.Duration
	err = c.profiled(ctx, func() (err error) {
		pods, err = startMany(ctx, client, manyPods)
		return err
	})
	if err != nil {
		return 0, err
	}
	fmt.Printf("  %d at once: pods %v, CRI calls %v\n", manyPods, pods.Round(time.Millisecond), call.Round(time.Millisecond))
	return float64(pods) / float64(call), nil
}

// startMany creates pods at once, and returns the time until all are Ready.
func startMany(ctx context.Context, client kubernetes.Interface, n int) (time.Duration, error) {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	events, err := watchPods(ctx, pods)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = concurrently(n, func(i int) error {
		pod := pod(fmt.Sprintf("many-%d", i))
		pod.Spec.Containers[0].Command = []string{"sh", "-c", exitOnTERM}
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return 0, err
	}
	ready := map[string]bool{}
	err = await(ctx, events, func(e watch.Event) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok && isReady(e) {
			ready[pod.Name] = true
		}
		return len(ready) == n
	})
	return time.Since(began), err
}

// concurrently calls f for each number below n at the same time.
func concurrently(n int, f func(int) error) error {
	failed := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { failed[i] = f(i) })
	}
	running.Wait()
	return errors.Join(failed...)
}

// criCalls makes the CRI calls that the agent makes for a pod, with the configuration that it had in them.
type criCalls struct {
	service   cri.RuntimeService
	sandbox   *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
	logs      string
}

// runtime starts a pod, reads its configuration from the runtime, and returns what repeats its calls. The pod keeps running,
// because others mount its files and are below its cgroup.
func (c *cluster) runtime(ctx context.Context, client kubernetes.Interface) (*criCalls, error) {
	endpoint, err := servers.RuntimeEndpoint(c.dataDir)
	if err != nil {
		return nil, err
	}
	service, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(limit).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return nil, err
	}
	r := &criCalls{service: service, logs: filepath.Join(c.dataDir, "bench-logs")}
	model := pod("model")
	model.Spec.Containers[0].Command = []string{"sh", "-c", exitOnTERM}
	if err := startPod(ctx, client, model); err != nil {
		return nil, err
	}
	return r, r.read(ctx)
}

// startPod creates a pod, and returns when it is Ready.
func startPod(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	events, err := watchPods(ctx, pods)
	if err != nil {
		return err
	}
	defer events.Stop()
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, events, isReady); err != nil {
		return fmt.Errorf("wait for pod %s: %w", p.Name, err)
	}
	return nil
}

// read reads the configuration of the only container and of its sandbox.
func (r *criCalls) read(ctx context.Context) error {
	containers, err := r.service.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	if len(containers) != 1 {
		return fmt.Errorf("the runtime has %d containers, want that of one pod", len(containers))
	}
	sandbox, err := r.service.PodSandboxStatus(ctx, containers[0].PodSandboxId, true)
	if err != nil {
		return err
	}
	container, err := r.service.ContainerStatus(ctx, containers[0].Id, true)
	if err != nil {
		return err
	}
	r.sandbox, r.container = &runtimeapi.PodSandboxConfig{}, &runtimeapi.ContainerConfig{}
	return errors.Join(configIn(sandbox.Info, r.sandbox), configIn(container.Info, r.container))
}

// configIn decodes the configuration in what containerd adds to a verbose status.
func configIn(info map[string]string, into any) error {
	var all struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &all); err != nil {
		return fmt.Errorf("the runtime's verbose status: %w", err)
	}
	if err := json.Unmarshal(all.Config, into); err != nil {
		return fmt.Errorf("the configuration in the runtime's verbose status: %w", err)
	}
	return nil
}

// one starts and stops one sandbox with its container.
func (r *criCalls) one(ctx context.Context, name string) (p pair, err error) {
	began := time.Now()
	sandbox, container, err := r.start(ctx, name)
	if err != nil {
		return pair{}, err
	}
	p.start = time.Since(began)
	began = time.Now()
	if err := r.service.StopContainer(ctx, container, int64(corev1.DefaultTerminationGracePeriodSeconds)); err != nil {
		return pair{}, err
	}
	if err := r.service.StopPodSandbox(ctx, sandbox); err != nil {
		return pair{}, err
	}
	p.stop = time.Since(began)
	return p, r.service.RemovePodSandbox(ctx, sandbox)
}

// many starts sandboxes with their containers at once, and removes them.
func (r *criCalls) many(ctx context.Context, n int) (time.Duration, error) {
	sandboxes := make([]string, n)
	began := time.Now()
	err := concurrently(n, func(i int) (err error) {
		sandboxes[i], _, err = r.start(ctx, fmt.Sprintf("call-%d", i))
		return err
	})
	took := time.Since(began)
	return took, errors.Join(err, concurrently(n, func(i int) error {
		return errors.Join(r.service.StopPodSandbox(ctx, sandboxes[i]), r.service.RemovePodSandbox(ctx, sandboxes[i]))
	}))
}

// start makes the calls that start a pod of one container.
func (r *criCalls) start(ctx context.Context, name string) (sandbox, container string, err error) {
	sandboxConfig, containerConfig, err := r.configFor(name)
	if err != nil {
		return "", "", err
	}
	if sandbox, err = r.service.RunPodSandbox(ctx, sandboxConfig, ""); err != nil {
		return "", "", err
	}
	if container, err = r.service.CreateContainer(ctx, sandbox, containerConfig, sandboxConfig); err != nil {
		return "", "", err
	}
	return sandbox, container, r.service.StartContainer(ctx, container)
}

// configFor returns the configuration for another pod. It has no labels, so that the agent does not take it for one of its
// pods.
func (r *criCalls) configFor(name string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig, error) {
	var sandbox runtimeapi.PodSandboxConfig
	var container runtimeapi.ContainerConfig
	if err := errors.Join(copyJSON(r.sandbox, &sandbox), copyJSON(r.container, &container)); err != nil {
		return nil, nil, err
	}
	sandbox.Metadata.Name, sandbox.Metadata.Uid, sandbox.Labels = name, name, nil
	sandbox.LogDirectory = filepath.Join(r.logs, name)
	container.Labels = nil
	return &sandbox, &container, os.MkdirAll(sandbox.LogDirectory, 0o755)
}

func copyJSON(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}
