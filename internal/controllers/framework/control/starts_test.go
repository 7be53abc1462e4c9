// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestStarts: a controller has started when one of its workers has first read its queue.
func TestStarts(t *testing.T) {
	starts := &Starts{}
	env := Env{Clock: testingclock.NewFakeClock(time.Unix(0, 0)), Starts: starts}
	var queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	for range 2 {
		q := env.Options(1).NewQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		q.ShutDown()
		queues = append(queues, q)
	}
	for i, q := range queues {
		if starts.Complete() {
			t.Errorf("complete after %d starts", i)
		}
		for range 2 {
			q.Get()
		}
	}
	if !starts.Complete() {
		t.Error("not complete after all starts")
	}
}
