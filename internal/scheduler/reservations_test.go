// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/storage/volume"
)

// TestReservesThroughTheAPI plays the binder and the provisioner by hand.
func TestReservesThroughTheAPI(t *testing.T) {
	ctx := context.Background()
	a := newAPI(testNode("n", "4"), testClass("static", volume.NotSupportedProvisioner), testClass("dynamic", "p"),
		testClaim("c1", "static", ""), testClaim("c2", "dynamic", ""), testVolume("v1", "static", "", ""),
		testPod("p", "1", claiming("c1", "c2")))
	start(t, Options{Client: a})

	volumes, claims := a.CoreV1().PersistentVolumes(), a.CoreV1().PersistentVolumeClaims("default")
	var c2 *v1.PersistentVolumeClaim
	eventually(t, "the node is selected", func() bool {
		c2, _ = claims.Get(ctx, "c2", metav1.GetOptions{})
		return c2.Annotations["volume.kubernetes.io/selected-node"] == "n"
	})
	object, err := volumes.Get(ctx, "v1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := object.Spec.ClaimRef
	if ref == nil || ref.Kind != "PersistentVolumeClaim" || ref.APIVersion != "v1" || ref.Name != "c1" || ref.UID != "c1" ||
		object.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("the volume is written as %+v, %v", ref, object.Annotations)
	}
	if got := a.pod(t, "p").Status.NominatedNodeName; got != "n" {
		t.Errorf("nominated to %q", got)
	}
	for name, bound := range map[string]string{"c1": "v1", "c2": "v2"} {
		if node := a.pod(t, "p").Spec.NodeName; node != "" {
			t.Fatalf("bound to %s before its claims", node)
		}
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		completed(bound)(claim)
		if _, err := claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := volumes.Create(ctx, testVolume("v2", "dynamic", "", "c2", "n"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is bound", func() bool { return a.pod(t, "p").Spec.NodeName == "n" })
}

// TestConflictingWrite: a volume that changed since the decision is not written.
func TestConflictingWrite(t *testing.T) {
	ctx := context.Background()
	a := newAPI(testNode("n", "4"), testClass("static", volume.NotSupportedProvisioner),
		testClaim("c", "static", ""), testVolume("v", "static", "", ""), testPod("p", "1", claiming("c")))
	var conflicts atomic.Int32
	a.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts.Add(1) > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(v1.Resource("persistentvolumes"), "v", errors.New("it has changed"))
	})
	start(t, Options{Client: a})
	eventually(t, "the failure is reported", func() bool { return len(a.pod(t, "p").Status.Conditions) > 0 })
	want := `running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on persistentvolumes "v": it has changed`
	if c := a.pod(t, "p").Status.Conditions[0]; c.Reason != "SchedulerError" || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	eventually(t, "the volume is written", func() bool {
		object, err := a.CoreV1().PersistentVolumes().Get(ctx, "v", metav1.GetOptions{})
		return err == nil && object.Spec.ClaimRef != nil && object.Spec.ClaimRef.Name == "c"
	})
}
