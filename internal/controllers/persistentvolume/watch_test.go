// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRequests: an event of one object wakes all claims and volumes whose next step depends on it.
func TestRequests(t *testing.T) {
	type C = *corev1.PersistentVolumeClaim
	called := func(name string, change ...func(C)) *corev1.PersistentVolumeClaim {
		c := newClaimOf(change...)
		c.Name, c.UID = name, ""
		return c
	}
	objs := []client.Object{
		called("naming", names("v")), called("classless"), called("delayed", class("delayed")), called("large", class(""), func(c C) { c.Spec.Resources.Requests = size("9Gi") }),
		newVolume("v"), newVolume("naming-it", refTo("naming", "")), newVolume("named-by-none", refTo("gone", "uid-gone")),
	}
	api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objs...).
		WithIndex(&corev1.PersistentVolumeClaim{}, VolumeNameIndex, VolumeNameOf).WithIndex(&corev1.PersistentVolume{}, ClaimRefIndex, ClaimRefOf).Build()
	b := &binder{client: api}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "delayed"}}},
	}}}
	onNode := pod.DeepCopy()
	onNode.Spec.NodeName = "n"
	for name, c := range map[string]struct {
		got  []reconcile.Request
		want string
	}{
		"a claim that names a volume, and is named": {b.requestsOfClaim(ctx, called("naming", names("v"))), "/naming-it /v ns/naming"},
		"a volume that is available":                {b.requestsOfVolume(ctx, newVolume("v")), "/v ns/classless ns/naming"},
		"a volume that is released":                 {b.requestsOfVolume(ctx, newVolume("x", phase(corev1.VolumeReleased))), "/x"},
		"a volume that names a claim":               {b.requestsOfVolume(ctx, newVolume("naming-it", refTo("naming", ""))), "/naming-it ns/naming"},
		"a class":                                   {b.requestsOfClass(ctx, newClass("delayed", "p", storagev1.VolumeBindingImmediate)), "ns/classless ns/delayed"},
		"a pod without a node":                      {requestsOfPod(ctx, pod), "ns/delayed"},
		"a pod on a node":                           {requestsOfPod(ctx, onNode), ""},
	} {
		var got []string
		for _, r := range c.got {
			got = append(got, r.String())
		}
		slices.Sort(got)
		if joined := strings.Join(got, " "); joined != c.want {
			t.Errorf("%s: got %q, want %q", name, joined, c.want)
		}
	}
}
