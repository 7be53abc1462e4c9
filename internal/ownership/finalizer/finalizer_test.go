// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestForeign(t *testing.T) {
	object := &metav1.ObjectMeta{}
	foreign := []string{
		// Without a slash, as Cluster API's and many operators' are.
		"cluster.cluster.x-k8s.io", "machine.cluster.x-k8s.io", "kubeadm.controlplane.cluster.x-k8s.io", "finalizer.example.com", "mine",
		// In a domain that Kubernetes' own are in as well, or one that looks like it.
		"kubernetes.io/mine", "service.kubernetes.io/mine", "batch.kubernetes.io/", "kubernetes.io", "foregroundDeletion/mine",
		// Finalizers of add-ons, which destroy external resources.
		"snapshot.storage.kubernetes.io/volumesnapshot-bound-protection", "external-attacher/ebs-csi-aws-com", "example.com/hold",
	}
	for _, name := range foreign {
		object.Finalizers = append(object.Finalizers, name, "orphan")
	}
	object.Finalizers = append(object.Finalizers,
		"foregroundDeletion", "kubernetes", "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes.io/vac-protection",
		"kubernetes.io/pv-controller", "external-provisioner.volume.kubernetes.io/finalizer", "batch.kubernetes.io/job-tracking",
		"service.kubernetes.io/load-balancer-cleanup", "networking.k8s.io/service-cidr-finalizer", "resource.kubernetes.io/delete-protection",
		"scheduling.k8s.io/podgroup-protection", "customresourcecleanup.apiextensions.k8s.io", "kubernetes.io/pvc-as-source-protection",
	)
	if got := Foreign(object); !slices.Equal(got, foreign) {
		t.Errorf("%q, want %q", got, foreign)
	}
}

func TestRemover(t *testing.T) {
	for finalizer, want := range map[string]string{
		"kubernetes.io/pvc-protection":      "the claim protection controller removes it when no pod uses the claim",
		"external-attacher/ebs.csi.aws.com": "the attacher of the CSI driver removes it when the volume is detached",
		"example.com/hold":                  "",
		"":                                  "",
	} {
		if got := Remover(finalizer); got != want {
			t.Errorf("%s: %q", finalizer, got)
		}
	}
}

func TestSetBy(t *testing.T) {
	object := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "none"},
		{Manager: "broken", FieldsV1: &metav1.FieldsV1{Raw: []byte("{")}},
		{Manager: "other", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:finalizers":{".":{},"v:\"e.com/other\"":{}}}}`)}},
		{Manager: "manager", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:finalizers":{"v:\"e.com/mine\"":{}}},"f:spec":{}}`)}},
	}}
	for name, want := range map[string]string{"e.com/mine": "manager", "e.com/other": "other", "e.com/unknown": ""} {
		if got := SetBy(object, name); got != want {
			t.Errorf("%s was set by %q, want %q", name, got, want)
		}
	}
}
