// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// boundTo is a volume of a claim, by the UID of the claim.
func boundTo(claim, policy string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, claim, "spec", "claimRef", "uid")
		_ = unstructured.SetNestedField(o.Object, policy, "spec", "persistentVolumeReclaimPolicy")
	}
}

// TestVolumesOfDeletedClaims: a preview says what happens to the data of each claim that is deleted, and shows no
// volume's policy to a caller who may not read the volume.
func TestVolumesOfDeletedClaims(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, "a", "root", nil)
	for _, name := range []string{"lost", "retained", "unbound", "secret"} {
		w.add(volumeClaims, "a", name, ownedBy(configMaps, "root"))
	}
	w.add(volumeClaims, "a", "kept", ownedBy(configMaps, "root", "other"))
	w.add(configMaps, "a", "other", nil)
	w.add(persistentVolumes, "", "v-lost", boundTo("lost", "Delete"))
	w.add(persistentVolumes, "", "v-retained", boundTo("retained", "Retain"))
	w.add(persistentVolumes, "", "v-secret", boundTo("secret", "Delete"))
	w.add(persistentVolumes, "", "v-kept", boundTo("kept", "Delete"))
	w.add(persistentVolumes, "", "v-free", nil)
	w.allowed = func(a authorizer.Attributes) bool {
		return a.GetResource() != "persistentvolumes" || a.GetName() != "" && a.GetName() != "v-secret"
	}

	status, err := w.preview(ownership.DeletionPreviewSpec{Targets: []ownership.DeletionTarget{target(configMaps, "a", "root")}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*ownership.ClaimedVolume{}
	for _, o := range status.Objects {
		got[o.Name] = o.Volume
	}
	want := map[string]*ownership.ClaimedVolume{
		"root": nil, "unbound": nil, "kept": nil,
		"lost":     {Name: "v-lost", ReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		"retained": {Name: "v-retained", ReclaimPolicy: corev1.PersistentVolumeReclaimRetain},
		"secret":   {Name: "v-secret"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}
