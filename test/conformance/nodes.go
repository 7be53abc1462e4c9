// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// nodesLimit limits the wait for usable nodes. The suite itself waits half an hour, and its error does not name the cause.
const nodesLimit = 2 * time.Minute

// awaitNodes returns when each node of a cluster accepts pods. The error says why one doesn't.
func awaitNodes(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	unusable := errors.New("no node has registered")
	err = wait.PollUntilContextTimeout(ctx, time.Second, nodesLimit, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			unusable = err
			return false, nil
		}
		if len(nodes.Items) > 0 {
			unusable = usable(nodes.Items)
		}
		return unusable == nil, nil
	})
	if err != nil {
		return fmt.Errorf("pods cannot run after %v: %w", nodesLimit, unusable)
	}
	return nil
}

// usable returns an error for each node that doesn't accept pods.
func usable(nodes []v1.Node) error {
	var failed []error
	for _, node := range nodes {
		ready := slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
		})
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule })
		if ready && !tainted && !node.Spec.Unschedulable {
			continue
		}
		failed = append(failed, fmt.Errorf("node %s: taints %v, conditions %v", node.Name, node.Spec.Taints, node.Status.Conditions))
	}
	return errors.Join(failed...)
}
