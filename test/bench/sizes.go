// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
)

// sizes of clusters whose memory is measured.
var (
	nodeCounts   = []int{10, 100, 1_000}
	objectCounts = []int{1_000, 10_000, 100_000}
)

// sizes prints the memory of idle clusters of each size, and returns that of the largest one, in MB. The nodes are simulated, the
// objects ConfigMaps.
func sizes(ctx context.Context, b *bench) (largest float64, err error) {
	fmt.Println("  nodes  objects  resident  not pages of files")
	for _, nodes := range nodeCounts {
		if largest, err = b.sizesWith(ctx, nodes); err != nil {
			return 0, fmt.Errorf("%d nodes: %w", nodes, err)
		}
	}
	return largest, nil
}

// sizesWith measures a cluster to which more and more objects are added.
func (b *bench) sizesWith(ctx context.Context, nodes int) (resident float64, err error) {
	c, client, err := b.startWithClient(ctx, "--no-node", "--simulated-nodes", strconv.Itoa(nodes))
	if err != nil {
		return 0, err
	}
	defer c.stop()
	for i, objects := range objectCounts {
		more := objects
		if i > 0 {
			more -= objectCounts[i-1]
		}
		if err := fill(ctx, client, fmt.Sprintf("objects-%d", i), more); err != nil {
			return 0, err
		}
		pause(ctx, idleTime)
		if resident, err = c.printSize(nodes, objects); err != nil {
			return 0, err
		}
	}
	return resident, nil
}

func (c *cluster) printSize(nodes, objects int) (resident float64, err error) {
	if resident, err = c.rss(); err != nil {
		return 0, err
	}
	anonymous, err := c.memory("RssAnon:")
	fmt.Printf("  %5d  %7d  %5.0f MB  %5.0f MB\n", nodes, objects, resident, anonymous)
	return resident, err
}
