// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// lanes run work concurrently, but the work for one pod in order: a failure to place a pod must
// not be written after its binding.
type lanes struct {
	done  sync.WaitGroup
	ctx   context.Context
	slots chan struct{}

	mu sync.Mutex
	// waiting has the pods with work in progress, and the work that follows it.
	waiting map[types.UID][]func()
}

// laneCount is the maximum number of pods with work in progress. When it is reached, the loop waits.
const laneCount = 512

func startLanes(ctx context.Context) *lanes {
	return &lanes{ctx: ctx, slots: make(chan struct{}, laneCount), waiting: map[types.UID][]func(){}}
}

// do runs work in a goroutine, after other work for the pod.
func (l *lanes) do(pod types.UID, work func()) {
	if l.isQueued(pod, work) {
		return
	}
	select {
	case l.slots <- struct{}{}:
	case <-l.ctx.Done():
		return
	}
	l.done.Go(func() {
		l.run(pod, work)
		<-l.slots
	})
}

// isQueued queues work if the pod has work in progress. Otherwise this work is, from now on.
func (l *lanes) isQueued(pod types.UID, work func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, busy := l.waiting[pod]
	if busy {
		queue = append(queue, work)
	}
	l.waiting[pod] = queue
	return busy
}

func (l *lanes) run(pod types.UID, work func()) {
	for ; work != nil; work = l.next(pod) {
		work()
	}
}

// next returns the next work for a pod, or nil.
func (l *lanes) next(pod types.UID) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.waiting[pod]
	if len(queue) == 0 || l.ctx.Err() != nil {
		delete(l.waiting, pod)
		return nil
	}
	l.waiting[pod] = queue[1:]
	return queue[0]
}

// wait returns when all work has ended. Cancel the context first, which also ends the work.
func (l *lanes) wait() { l.done.Wait() }
