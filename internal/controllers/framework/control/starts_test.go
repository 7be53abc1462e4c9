// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestStarts: Wait returns when a worker of each controller has first read its queue.
func TestStarts(t *testing.T) {
	starts := &Starts{}
	env := Env{Clock: testingclock.NewFakeClock(time.Unix(0, 0)), Starts: starts}
	var queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	for range 2 {
		q := env.Options(1).NewQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		q.ShutDown()
		queues = append(queues, q)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, q := range queues {
		if err := starts.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d starts, Wait returns %v", i, err)
		}
		for range 2 {
			q.Get()
		}
	}
	if err := starts.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := (&Starts{}).Wait(t.Context()); err != nil {
		t.Errorf("without controllers, Wait returns %v", err)
	}
}
