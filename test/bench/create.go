// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	clients = 32
	// warmUp precedes the measured time; it fills connections, caches and the heap.
	warmUp   = 2 * time.Second
	measured = 8 * time.Second
)

// create creates one object.
type create func(ctx context.Context, client kubernetes.Interface, name string) error

func createConfigMap(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap(name), metav1.CreateOptions{})
	return err
}

// createUnscheduled creates a pod that no scheduler handles, because it names one that does not exist. That measures the API alone.
func createUnscheduled(ctx context.Context, client kubernetes.Interface, name string) error {
	pod := pod(name)
	pod.Spec.SchedulerName = "nobody"
	return createThis(ctx, client, pod)
}

func createThis(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// creating measures how many objects a second all clients together create; each client creates one after the other.
func creating(create create, nodes int) work {
	return work{nodes: nodes, measure: func(ctx context.Context, s *side) (float64, error) { return createRate(ctx, s, create) }}
}

func createRate(ctx context.Context, s *side, create create) (float64, error) {
	var created atomic.Int64
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	for i := range clients {
		client, err := newClient(s.config)
		if err != nil {
			return 0, err
		}
		group.Go(func() error {
			for n := 0; loading.Err() == nil; n++ {
				// The end is checked between two creates, so a create in progress is completed.
				if err := create(ctx, client, fmt.Sprintf("c%d-%d", i, n)); err != nil {
					stop()
					return err
				}
				created.Add(1)
			}
			return nil
		})
	}
	pause(loading, warmUp)
	var rate float64
	err := s.profiled(loading, func() error {
		return s.spending(func() error {
			before, began := created.Load(), time.Now()
			pause(loading, measured)
			rate = float64(created.Load()-before) / time.Since(began).Seconds()
			return nil
		})
	})
	stop()
	if loadErr := group.Wait(); loadErr != nil {
		return 0, loadErr
	}
	return rate, err
}

// runningPods is less than the simulated nodes have room for.
const runningPods = 125 * clients

// creatingRunning measures how many pods a second come to run when all clients together create them as fast as they can. So it
// counts what the scheduler and the nodes do meanwhile, too: a pod that only exists is of no use.
var creatingRunning = work{nodes: 50, measure: func(ctx context.Context, s *side) (float64, error) {
	w := workload{measure: func(ctx context.Context, _ kubernetes.Interface) error { return createAndAwait(ctx, s) }}
	var seconds float64
	err := s.profiled(ctx, func() (err error) {
		seconds, err = w.timed(ctx, s)
		return err
	})
	return runningPods / seconds, err
}}

func createAndAwait(ctx context.Context, s *side) error {
	group, ctx := errgroup.WithContext(ctx)
	awaitErr := awaitPods(ctx, s, runningPods, isRunning, func() error {
		for i := range clients {
			client, err := newClient(s.config)
			if err != nil {
				return err
			}
			group.Go(func() error { return createPods(ctx, client, i, runningPods/clients) })
		}
		return nil
	})
	// The failure of a client ends the waiting.
	return cmp.Or(group.Wait(), awaitErr)
}

func createPods(ctx context.Context, client kubernetes.Interface, creator, count int) error {
	for n := range count {
		if err := createThis(ctx, client, pod(fmt.Sprintf("c%d-%d", creator, n))); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": "value"}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		}}},
	}
}
