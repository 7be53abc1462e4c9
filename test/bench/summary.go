// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summaries is the number of times that the summary is read.
const summaries = 20

// summaryLatency returns the median time, in ms, of /stats/summary of a node full of pods, read through the API server.
func summaryLatency(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if err := startProbed(ctx, client); err != nil {
		return 0, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	path := "/api/v1/nodes/" + nodes.Items[0].Name + "/proxy/stats/summary"
	var took []time.Duration
	for range summaries {
		pause(ctx, time.Second)
		began := time.Now()
		text, err := client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		var summary statsapi.Summary
		if err := json.Unmarshal(text, &summary); err != nil {
			return 0, err
		}
		if len(summary.Pods) != probedPods {
			return 0, fmt.Errorf("the summary has %d pods, and %d run", len(summary.Pods), probedPods)
		}
	}
	slices.Sort(took)
	fmt.Printf("  /stats/summary of %d pods: fastest %v, median %v, slowest %v\n", probedPods, took[0], took[summaries/2], took[summaries-1])
	return float64(took[summaries/2]) / float64(time.Millisecond), nil
}
