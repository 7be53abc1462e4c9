// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

func member(name, group string, phase corev1.PodPhase) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	if group != "" {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	}
	return pod
}

func TestRelease(t *testing.T) {
	elsewhere := member("p", "g", corev1.PodRunning)
	elsewhere.Namespace = "other"
	for name, test := range map[string]struct {
		pods    []client.Object
		deleted bool
		gone    bool
	}{
		"not deleted":          {nil, false, false},
		"no pods":              {nil, true, true},
		"a pending pod":        {[]client.Object{member("p", "g", corev1.PodPending)}, true, false},
		"a running pod":        {[]client.Object{member("p", "g", corev1.PodSucceeded), member("q", "g", corev1.PodRunning)}, true, false},
		"all pods have ended":  {[]client.Object{member("p", "g", corev1.PodSucceeded), member("q", "g", corev1.PodFailed)}, true, true},
		"pods of other groups": {[]client.Object{member("p", "h", corev1.PodRunning), member("q", "", corev1.PodRunning), elsewhere}, true, true},
	} {
		group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "g", Finalizers: []string{finalizer}}}
		w := controltest.New(t, append(test.pods, group)...)
		w.Index(&corev1.Pod{}, groupIndex, activeGroups)
		if test.deleted {
			w.Must(w.API.Delete(t.Context(), group))
		}
		w.Sync()
		key := client.ObjectKeyFromObject(group)
		if _, err := (&reconciler{w.Env().Client}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if err := w.API.Get(t.Context(), key, group); apierrors.IsNotFound(err) != test.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGroupOf(t *testing.T) {
	if requests := groupOf(t.Context(), member("p", "g", corev1.PodFailed)); len(requests) != 1 || requests[0].String() != "app/g" {
		t.Errorf("%v", requests)
	}
	if requests := groupOf(t.Context(), member("p", "", corev1.PodFailed)); requests != nil {
		t.Errorf("%v", requests)
	}
}
