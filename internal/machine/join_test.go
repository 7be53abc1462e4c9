// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
)

// TestNoticeOfANodeThatIsNotReady: after a while the user gets the node's own message.
func TestNoticeOfANodeThatIsNotReady(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	notices := make(chan string, 1)
	m := &Machine{options: Options{Clock: clock, Name: "a", Notice: func(line string) { notices <- line }}}
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse, Message: "container runtime network not ready"}},
	}})
	ready, done := make(chan struct{}), make(chan error)
	go func() { done <- m.awaitNode(t.Context(), client, ready) }()
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(9 * time.Second)
	select {
	case line := <-notices:
		t.Errorf("notice after nine seconds: %s", line)
	default:
	}
	clock.Step(time.Second)
	if line := <-notices; line != "waiting for node a: container runtime network not ready" {
		t.Errorf("notice %q", line)
	}
	close(ready)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
