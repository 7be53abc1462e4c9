// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// TestEarlyRefusal: nothing is assigned to a pod that is refused whatever it requests.
func TestEarlyRefusal(t *testing.T) {
	want := &pod.Refusal{Reason: "Evicted"}
	early := func(context.Context, *v1.Pod) *pod.Refusal { return want }
	resources := admittedResources{early: early} // without a manager, an assignment panics
	if got := resources.Assign(t.Context(), &v1.Pod{}); got != want {
		t.Errorf("refused with %+v", got)
	}
}
