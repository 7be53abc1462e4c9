// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"hash/fnv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// lanes do work at the same time, but one pod's in the order in which it was given:
// that a pod could not be placed must not be written after it was bound.
type lanes struct {
	done    sync.WaitGroup
	ctx     context.Context
	waiting []chan func()
}

// How many lanes there are, and how much each may put off before the loop has to
// wait for it.
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

// do gives work to the lane of a pod.
func (l *lanes) do(pod types.UID, work func()) {
	hash := fnv.New32a()
	hash.Write([]byte(pod))
	select {
	case l.waiting[hash.Sum32()%laneCount] <- work:
	case <-l.ctx.Done():
	}
}

// wait returns when all work under way has ended. It follows the end of the context,
// which also ends the work.
func (l *lanes) wait() { l.done.Wait() }
