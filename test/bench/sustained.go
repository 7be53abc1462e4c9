// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

const (
	// churned is the number of pods that are created and deleted, inNamespace that of objects of a deleted namespace.
	churned     = 3000
	inNamespace = 2000
	// watchers and watched are the numbers of watches and of writes that each of them sees.
	watchers = 100
	watched  = 1000
	// lists is the number of lists of which the median counts.
	lists = 40
)

// starting measures the time of a start with its nodes.
var starting = work{nodes: 20, measure: func(_ context.Context, s *side) (float64, error) { return s.startTook.Seconds(), nil }}

// resting measures the memory of a side that has done nothing since its start.
var resting = work{nodes: 20, measure: func(ctx context.Context, s *side) (float64, error) {
	pause(ctx, idleTime)
	return s.memory()
}}

// loaded measures the memory of a side after a load, and prints what it is a minute later.
var loaded = work{nodes: 20, measure: func(ctx context.Context, s *side) (float64, error) {
	for _, step := range []struct {
		name string
		do   func(context.Context, *side) error
	}{
		{"create ConfigMaps", func(ctx context.Context, s *side) error { return fill(ctx, s, "full", dependents) }},
		{"create and delete pods", churn},
		{"collect dependents", collectOnce},
		{"collect dependents again", collectOnce},
		{"scale a Deployment up", func(ctx context.Context, s *side) error { return scaleTo(manyReplicas)(ctx, s) }},
		{"delete the Deployment", func(ctx context.Context, s *side) error { return deleteDeployment(manyReplicas)(ctx, s) }},
		{"delete a namespace", deleteNamespace},
	} {
		if err := step.do(ctx, s); err != nil {
			return 0, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	after, err := s.memory()
	if err != nil {
		return 0, err
	}
	pause(ctx, time.Minute)
	later, err := s.memory()
	fmt.Printf("  %s: %.0f MB after the load, %.0f MB a minute later\n", s.name, after, later)
	return after, err
}}

// fill creates a namespace with a number of ConfigMaps.
func fill(ctx context.Context, client kubernetes.Interface, namespace string, count int) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	return byClients(ctx, count, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(fmt.Sprintf("c%d", i)), metav1.CreateOptions{})
		return err
	})
}

// byClients calls a function for each number below count, with as many calls at once as there are clients.
func byClients(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// churn creates pods that are not scheduled, and deletes them.
func churn(ctx context.Context, s *side) error {
	err := byClients(ctx, churned, func(ctx context.Context, i int) error { return createUnscheduled(ctx, s, fmt.Sprintf("churned-%d", i)) })
	if err != nil {
		return err
	}
	return byClients(ctx, churned, func(ctx context.Context, i int) error {
		return s.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, fmt.Sprintf("churned-%d", i), metav1.DeleteOptions{})
	})
}

func collectOnce(ctx context.Context, s *side) error {
	configMaps := s.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	owner, err := plant(ctx, configMaps, dependents, 1)
	if err != nil {
		return err
	}
	_, err = fell(ctx, configMaps, owner, background, dependents)
	return err
}

// deleteNamespace deletes a namespace with many objects, and waits until it is gone.
func deleteNamespace(ctx context.Context, s *side) error {
	const name = "deleted"
	if err := fill(ctx, s, name, inNamespace); err != nil {
		return err
	}
	events, err := s.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	if err := s.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		events.Stop()
		return err
	}
	return await(ctx, events, func(e watch.Event) bool { return e.Type == watch.Deleted })
}

// watching measures how many events a second all watches together get while objects are created.
var watching = work{nodes: 1, measure: func(ctx context.Context, s *side) (float64, error) {
	list, err := s.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	var all []watch.Interface
	for range watchers {
		client, err := newClient(s.config)
		if err != nil {
			return 0, err
		}
		events, err := resumed(ctx, client, list.ResourceVersion)
		if err != nil {
			return 0, err
		}
		all = append(all, events)
	}
	began := time.Now()
	err = s.spending(func() error { return watchAll(ctx, s, all) })
	return watchers * watched / time.Since(began).Seconds(), err
}}

// watchAll creates objects, and waits until each watch has seen all of them.
func watchAll(ctx context.Context, client kubernetes.Interface, watches []watch.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, events := range watches {
		group.Go(func() error {
			seen := 0
			return await(ctx, events, func(watch.Event) bool {
				seen++
				return seen == watched
			})
		})
	}
	group.Go(func() error {
		return byClients(ctx, watched, func(ctx context.Context, i int) error {
			object := configMap(fmt.Sprintf("watched-%d", i))
			object.Labels = map[string]string{dependentLabel: ""}
			_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	})
	return group.Wait()
}

// resumed watches the ConfigMaps with the label from a version. It resumes the watch when the server ends it, as servers do with
// slow watches.
func resumed(ctx context.Context, client kubernetes.Interface, version string) (watch.Interface, error) {
	return toolswatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = dependentLabel
			return client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(ctx, options)
		},
	})
}

// listing measures the median time of a list of a number of ConfigMaps, in ms.
func listing(count int) work {
	return work{nodes: 1, measure: func(ctx context.Context, s *side) (float64, error) {
		if err := fill(ctx, s, "listed", count); err != nil {
			return 0, err
		}
		pause(ctx, settling)
		var took []time.Duration
		err := s.profiled(ctx, func() error {
			return s.spending(func() (err error) {
				took, err = listTimes(ctx, s, count)
				return err
			})
		})
		return median(took).Seconds() * 1000, err
	}}
}

// listTimes lists ConfigMaps again and again, and returns how long each list took.
func listTimes(ctx context.Context, client kubernetes.Interface, count int) (took []time.Duration, err error) {
	for range lists {
		began := time.Now()
		got, err := client.CoreV1().ConfigMaps("listed").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		if len(got.Items) < count { // there may be one more: kube-root-ca.crt
			return nil, fmt.Errorf("the list has %d items, not %d", len(got.Items), count)
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
