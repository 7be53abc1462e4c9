// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground

	dependents = 5000
	// A tree with this width and depth has as many objects as the flat one.
	wide, deep = 10, 4
	inTree     = 10 + 100 + 1000 + 10000
	// A tree with this depth is what people have.
	shallow       = 3
	inShallowTree = 10 + 100 + 1000

	// settling is the time for all watches to receive the created objects.
	settling = 2 * time.Second

	dependentLabel = "bench.kindred.dev/dependent"
)

// collect measures how many dependents a second are deleted, from the deletion of their owner to
// the last of them.
func collect(policy metav1.DeletionPropagation, dependents, depth int) work {
	return work{nodes: 1, measure: func(ctx context.Context, s *side) (float64, error) {
		configMaps := s.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		owner, err := plant(ctx, configMaps, dependents, depth)
		if err != nil {
			return 0, err
		}
		var took, processor time.Duration
		err = s.profiled(ctx, func() (err error) {
			before := s.processorTime()
			took, err = fell(ctx, configMaps, owner, policy, dependents)
			processor = s.processorTime() - before
			return err
		})
		if err != nil {
			return 0, err
		}
		// A busy machine affects the CPU time less than the rate.
		fmt.Printf("  %v of %s's processor time for each dependent\n", (processor / time.Duration(dependents)).Round(time.Microsecond), s.name)
		return float64(dependents) / took.Seconds(), nil
	}}
}

// plant creates an owner with dependents and waits until the server is idle. In a deep tree each
// dependent owns ten others.
func plant(ctx context.Context, configMaps corev1client.ConfigMapInterface, dependents, depth int) (*corev1.ConfigMap, error) {
	owner, err := configMaps.Create(ctx, configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	width := dependents
	if depth > 1 {
		width = wide
	}
	for owners := []*corev1.ConfigMap{owner}; depth > 0; depth-- {
		if owners, err = createDependents(ctx, configMaps, owners, width); err != nil {
			return nil, err
		}
	}
	pause(ctx, settling)
	return owner, ctx.Err()
}

// createDependents creates a number of dependents for each owner, and returns them all.
func createDependents(ctx context.Context, configMaps corev1client.ConfigMapInterface, owners []*corev1.ConfigMap, width int) ([]*corev1.ConfigMap, error) {
	created := make([]*corev1.ConfigMap, len(owners)*width)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for i := range created {
		owner := owners[i/width]
		group.Go(func() (err error) {
			dependent := configMap(fmt.Sprintf("%s-%d", owner.Name, i))
			dependent.Labels = map[string]string{dependentLabel: ""}
			dependent.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true),
			}}
			created[i], err = configMaps.Create(ctx, dependent, metav1.CreateOptions{})
			return err
		})
	}
	return created, group.Wait()
}

// fell deletes the owner, and returns when a watch has shown the deletion of all dependents.
func fell(ctx context.Context, configMaps corev1client.ConfigMapInterface, owner *corev1.ConfigMap, policy metav1.DeletionPropagation, dependents int) (time.Duration, error) {
	// Watch from now on: a watch that starts with 100,000 objects would fall behind.
	now, err := configMaps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	gone, err := configMaps.Watch(ctx, metav1.ListOptions{LabelSelector: dependentLabel, ResourceVersion: now.ResourceVersion})
	if err != nil {
		return 0, err
	}
	began, left := time.Now(), dependents
	if err := configMaps.Delete(ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return 0, err
	}
	err = await(ctx, gone, func(e watch.Event) bool {
		if e.Type == watch.Deleted {
			left--
		}
		return left == 0
	})
	return time.Since(began), err
}

const (
	besideDependents = 50_000
	// ordinaryRate is the number of requests a second that other clients send during the
	// collection, and ordinaryTime how long they do so before it.
	ordinaryRate = 200
	ordinaryTime = 10 * time.Second
)

// yielding measures how a collection affects other clients: the 99th percentile of their latencies
// during it, divided by the one without it.
func yielding(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithClient(ctx, simulatedNode...)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := plant(ctx, configMaps, besideDependents, 1)
	if err != nil {
		return 0, err
	}
	others, err := c.client()
	if err != nil {
		return 0, err
	}
	before, err := ordinary(ctx, others, func(ctx context.Context) error { pause(ctx, ordinaryTime); return nil })
	if err != nil {
		return 0, err
	}
	var took time.Duration
	var during []time.Duration
	err = c.profiled(ctx, func() (err error) {
		during, err = ordinary(ctx, others, func(ctx context.Context) (err error) {
			took, err = fell(ctx, configMaps, owner, background, besideDependents)
			return err
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	calm, busy := percentiles(before), percentiles(during)
	fmt.Printf("  without: p50 %s ms, p99 %s ms; during: p50 %s ms, p99 %s ms, %.0f/s collected\n",
		millis(calm[0]), millis(calm[1]), millis(busy[0]), millis(busy[1]), besideDependents/took.Seconds())
	return float64(busy[1]) / float64(calm[1]), nil
}

// ordinary sends requests at a steady rate until f returns: creates, updates, reads and deletes of
// single objects, a quarter each. It does not wait for slow requests before the next one.
func ordinary(ctx context.Context, client kubernetes.Interface, f func(context.Context) error) ([]time.Duration, error) {
	requests, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var took []time.Duration
	var sent errgroup.Group
	secrets := client.CoreV1().Secrets(metav1.NamespaceDefault)
	sent.Go(func() error {
		ticker := time.NewTicker(4 * time.Second / ordinaryRate)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-requests.Done():
				return nil
			case <-ticker.C:
			}
			sent.Go(func() error {
				times, err := fourRequests(ctx, secrets, fmt.Sprintf("ordinary-%d", n))
				mu.Lock()
				defer mu.Unlock()
				took = append(took, times...)
				return err
			})
		}
	})
	err := f(ctx)
	stop()
	if requestErr := sent.Wait(); requestErr != nil {
		err = requestErr
	}
	return took, err
}

// fourRequests creates, reads, updates and deletes one object.
func fourRequests(ctx context.Context, secrets corev1client.SecretInterface, name string) ([]time.Duration, error) {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": "value"}}
	var took []time.Duration
	for _, request := range []func() error{
		func() (err error) { object, err = secrets.Create(ctx, object, metav1.CreateOptions{}); return err },
		func() error {
			object.Labels = map[string]string{"changed": "true"}
			_, err := secrets.Update(ctx, object, metav1.UpdateOptions{})
			return err
		},
		func() error { _, err := secrets.Get(ctx, name, metav1.GetOptions{}); return err },
		func() error { return secrets.Delete(ctx, name, metav1.DeleteOptions{}) },
	} {
		began := time.Now()
		if err := request(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
