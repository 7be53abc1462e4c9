// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"hash/fnv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// lanes run work concurrently, but the work for one pod in order: a failure to place a pod must
// not be written after its binding.
type lanes struct {
	done    sync.WaitGroup
	ctx     context.Context
	waiting []chan func()
}

// The number of lanes, and the length of each queue. When a queue is full, the loop waits.
const (
	laneCount  = 32
	laneLength = 128
)

func startLanes(ctx context.Context) *lanes {
	l := &lanes{ctx: ctx}
	for range laneCount {
		lane := make(chan func(), laneLength)
		l.waiting = append(l.waiting, lane)
		l.done.Go(func() { l.run(lane) })
	}
	return l
}

func (l *lanes) run(lane chan func()) {
	for {
		select {
		case work := <-lane:
			work()
		case <-l.ctx.Done():
			return
		}
	}
}

// do queues work in the lane of a pod.
func (l *lanes) do(pod types.UID, work func()) {
	hash := fnv.New32a()
	hash.Write([]byte(pod))
	select {
	case l.waiting[hash.Sum32()%laneCount] <- work:
	case <-l.ctx.Done():
	}
}

// wait returns when all work has ended. Cancel the context first, which also ends the work.
func (l *lanes) wait() { l.done.Wait() }
