// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/test/images"
)

const (
	image = "docker.io/library/kindred-bench:1"
	// podRuns is how many pods are started and stopped, one after the other. The first pod is a warm-up
	// and not one of them.
	podRuns = 20
)

// exitOnTERM is a shell program that exits at once on SIGTERM. It sleeps in the background and waits,
// because a shell runs a trap only after its foreground command has ended, unless that is wait.
const exitOnTERM = `trap exit TERM; while :; do sleep 0.1 & wait; done`

func podStart(ctx context.Context, b *bench) (float64, error) {
	started, _, err := podTimes(ctx, b, nothingBefore)
	return median(started).Seconds(), err
}

// podStartWithPolicies measures pods that a policy isolates, whose start therefore waits for its rules.
func podStartWithPolicies(ctx context.Context, b *bench) (float64, error) {
	started, _, err := podTimes(ctx, b, func(ctx context.Context, client kubernetes.Interface) error {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
		_, err := client.NetworkingV1().NetworkPolicies(metav1.NamespaceDefault).Create(ctx, policy, metav1.CreateOptions{})
		return err
	})
	return median(started).Seconds(), err
}

func podStop(ctx context.Context, b *bench) (float64, error) {
	_, stopped, err := podTimes(ctx, b, nothingBefore)
	return median(stopped).Seconds(), err
}

func nothingBefore(context.Context, kubernetes.Interface) error { return nil }

// podTimes prepares a cluster, starts and stops real pods, and measures the time from create to Ready and from delete
// until the API no longer has the pod.
func podTimes(ctx context.Context, b *bench, prepare func(context.Context, kubernetes.Interface) error) (started, stopped []time.Duration, err error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer c.stop()
	if err := prepare(ctx, client); err != nil {
		return nil, nil, err
	}
	if _, _, err := onePod(ctx, client, "warm-up"); err != nil {
		return nil, nil, err
	}
	err = c.profiled(ctx, func() error {
		for i := range podRuns {
			start, stop, err := onePod(ctx, client, fmt.Sprintf("pod-%d", i))
			if err != nil {
				return err
			}
			started, stopped = append(started, start), append(stopped, stop)
		}
		return nil
	})
	return started, stopped, err
}

// startWithNode starts a cluster with a real node that has the image of the pods.
func (b *bench) startWithNode(ctx context.Context) (*cluster, *kubernetes.Clientset, error) {
	archive := filepath.Join(b.scratch, "busybox.tar")
	if err := images.Busybox(archive, image); err != nil {
		return nil, nil, err
	}
	c, client, err := b.startWithClient(ctx, realNode...)
	if err != nil {
		return nil, nil, err
	}
	if out, err := c.run("image", "load", archive); err != nil {
		c.stop()
		return nil, nil, fmt.Errorf("load the image: %w: %s", err, out)
	}
	return c, client, nil
}

// onePod starts and stops one pod, and returns how long each took.
func onePod(ctx context.Context, client kubernetes.Interface, name string, change ...func(*corev1.Pod)) (start, stop time.Duration, err error) {
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := pod(name)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", exitOnTERM}
	for _, f := range change {
		f(pod)
	}
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return 0, 0, err
	}
	defer events.Stop()
	began := time.Now()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return 0, 0, err
	}
	if err := until(ctx, events, isReady); err != nil {
		return 0, 0, fmt.Errorf("wait for pod %s to become ready: %w", name, err)
	}
	start = time.Since(began)
	began = time.Now()
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, 0, err
	}
	if err := until(ctx, events, func(e watch.Event) bool { return e.Type == watch.Deleted }); err != nil {
		return 0, 0, fmt.Errorf("wait for the deletion of pod %s: %w", name, err)
	}
	return start, time.Since(began), nil
}

func isReady(e watch.Event) bool {
	pod, ok := e.Object.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
