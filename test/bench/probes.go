// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	// probedPods is how many pods are probed: as many as a node takes.
	probedPods = 110
	// probedTime is how long they are, before the processor time is read, and while it is.
	probedTime = 30 * time.Second
)

// probesProcessor returns the share of a core, in percent, that pods with a probe each second cost the process.
func probesProcessor(ctx context.Context, b *bench) (float64, error) {
	share, _, err := probesCost(ctx, b)
	return share, err
}

// probesMemory returns the memory, in MB, that they cost it.
func probesMemory(ctx context.Context, b *bench) (float64, error) {
	_, memory, err := probesCost(ctx, b)
	return memory, err
}

// probesCost compares the process without pods with the process with probed pods.
func probesCost(ctx context.Context, b *bench) (share, memory float64, err error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer c.stop()
	shareBefore, memoryBefore, err := c.idleCost(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := startProbed(ctx, client); err != nil {
		return 0, 0, err
	}
	var shareAfter, memoryAfter float64
	err = c.profiled(ctx, func() (err error) {
		shareAfter, memoryAfter, err = c.idleCost(ctx)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	fmt.Printf("  %d pods with a probe each second: %.1f %% of a core and %.0f MB, %.1f %% and %.0f MB without pods\n",
		probedPods, shareAfter, memoryAfter, shareBefore, memoryBefore)
	return shareAfter - shareBefore, memoryAfter - memoryBefore, nil
}

// idleCost waits until the process is idle, and returns the share of a core, in percent, and the memory that it then uses.
func (c *cluster) idleCost(ctx context.Context) (share, memory float64, err error) {
	pause(ctx, probedTime)
	before, began := c.processorTime(), time.Now()
	pause(ctx, probedTime)
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	share = 100 * float64(c.processorTime()-before) / float64(time.Since(began))
	memory, err = c.rss()
	if err != nil {
		return 0, 0, err
	}
	anonymous, err := c.memory("RssAnon:")
	fmt.Printf("  resident %.0f MB, of which %.0f MB are not pages of files\n", memory, anonymous)
	return share, memory, err
}

// startProbed starts the probed pods, and waits until all are Ready.
func startProbed(ctx context.Context, client kubernetes.Interface) error {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	events, err := watchPods(ctx, pods)
	if err != nil {
		return err
	}
	for i := range probedPods {
		if _, err := pods.Create(ctx, probedPod(fmt.Sprintf("probed-%d", i)), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	ready := map[string]bool{}
	return await(ctx, events, func(e watch.Event) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok && isReady(e) {
			ready[pod.Name] = true
		}
		return len(ready) == probedPods
	})
}

// probedPod returns a pod whose container answers an HTTP probe each second.
func probedPod(name string) *corev1.Pod {
	p := pod(name)
	container := &p.Spec.Containers[0]
	container.Command = []string{"httpd", "-f", "-p", "8080", "-h", "/"}
	container.LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/etc/hostname", Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1,
	}
	p.Spec.TerminationGracePeriodSeconds = new(int64)
	return p
}
