// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// createScheduled creates a pod that is scheduled and runs on a simulated node.
func createScheduled(ctx context.Context, client kubernetes.Interface, name string) error {
	return createThis(ctx, client, pod(name))
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
		before, began := created.Load(), time.Now()
		pause(loading, measured)
		rate = float64(created.Load()-before) / time.Since(began).Seconds()
		return nil
	})
	stop()
	if loadErr := group.Wait(); loadErr != nil {
		return 0, loadErr
	}
	return rate, err
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
