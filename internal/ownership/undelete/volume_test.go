// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func claimedBy(name, uid string) change {
	return set(map[string]any{"namespace": "shop", "name": name, "uid": uid, "resourceVersion": "7"}, "spec", "claimRef")
}

// TestClaimsAndTheirVolumes checks that a claim keeps a volume that is still its own, that the
// volume gets the new UID, and that the reason explains every other case.
func TestClaimsAndTheirVolumes(t *testing.T) {
	conflict := apierrors.NewConflict(resourceOf("PersistentVolume").GroupResource(), "v", errBroken)
	for name, tt := range map[string]struct {
		volume    *unstructured.Unstructured
		forbidden string
		// fails are the errors of the patches of the volume, in order.
		fails  []error
		phase  ownership.UndeletionPhase
		keeps  bool
		uid    string // in the claimRef at the end
		reason string
	}{
		"released": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim")), keeps: true, uid: "new-claim",
			reason: "its volume v is bound to it again"},
		"available": {volume: object("PersistentVolume", "v"), keeps: true, reason: "it names its volume v again, which is bound to no claim"},
		"reserved by name": {volume: object("PersistentVolume", "v", claimedBy("claim", "")), keeps: true,
			reason: "its volume v is bound to it again"},
		"gone":          {reason: "its volume v no longer exists: the claim is restored unbound, without its data"},
		"being deleted": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim"), deleting), uid: "claim", reason: "its volume v is being deleted: "},
		"another's":     {volume: object("PersistentVolume", "v", claimedBy("other", "other")), uid: "other", reason: "its volume v is bound to another claim: "},
		"bound to another claim with the same name": {volume: object("PersistentVolume", "v", claimedBy("claim", "later")), uid: "later",
			reason: "its volume v is bound to another claim, which had the same name: "},
		"the caller may not": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim")), forbidden: "patch PersistentVolume", keeps: true, uid: "claim",
			reason: "its volume v still names the deleted claim, and you may not patch it: "},
		"the API fails": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim")), fails: []error{errBroken}, keeps: true, uid: "claim",
			reason: "its volume v still names the deleted claim, and it cannot be patched (broken): "},
		"conflict with another client": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim")), fails: []error{conflict}, keeps: true, uid: "new-claim",
			reason: "its volume v is bound to it again"},
		"the server is busy": {volume: object("PersistentVolume", "v", claimedBy("claim", "claim")), fails: []error{apierrors.NewTooManyRequests("busy", 1)}, keeps: true, uid: "claim",
			phase: ownership.UndeletionIncomplete, reason: "its volume v is bound to it again"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := object("PersistentVolumeClaim", "claim", set("v", "spec", "volumeName"))
			var there []*unstructured.Unstructured
			if tt.volume != nil {
				there = append(there, tt.volume)
			}
			w := deleted(t, []*unstructured.Unstructured{claim}, there...)
			w.forbidden = []string{tt.forbidden}
			w.on("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if len(tt.fails) == 0 {
					return false, nil, nil
				}
				err := tt.fails[0]
				tt.fails = tt.fails[1:]
				return true, nil, err
			})
			phase := ownership.UndeletionComplete
			if tt.phase != "" {
				phase = tt.phase
			}
			report := w.ends(t, "PersistentVolumeClaim", "claim", phase, "claim Restored")
			if reason := report.Items[0].Reason; !strings.HasPrefix(reason, tt.reason) {
				t.Errorf("reason %q", reason)
			}
			if kept := volumeOf(w.get(t, "PersistentVolumeClaim", "claim")) == "v"; kept != tt.keeps {
				t.Errorf("names its volume: %v", kept)
			}
			if got := w.claimUID(t); got != tt.uid {
				t.Errorf("the claimRef has the UID %q", got)
			}
			if phase == ownership.UndeletionIncomplete {
				w.ends(t, "PersistentVolumeClaim", "claim", ownership.UndeletionComplete, "claim Restored")
				if got := w.claimUID(t); got != "new-claim" {
					t.Errorf("in the end the claimRef has the UID %q", got)
				}
			}
		})
	}
}

// TestVolumesOfClaimsThatAreLeft: a claim that is not restored says where its data is, because its
// controller may create a new, empty one.
func TestVolumesOfClaimsThatAreLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		volume *unstructured.Unstructured
		want   string
	}{
		"gone":          {nil, "its volume v no longer exists: a new claim of this name starts without its data"},
		"being deleted": {object("PersistentVolume", "v", claimedBy("claim", "claim"), deleting), "its volume v is being deleted"},
		"another's":     {object("PersistentVolume", "v", claimedBy("other", "other")), "its volume v is bound to another claim"},
		"kept":          {object("PersistentVolume", "v", claimedBy("claim", "claim")), "its volume v still exists: \"kindred undelete\" of the claim restores it with its data"},
	} {
		t.Run(name, func(t *testing.T) {
			root := object("ConfigMap", "root")
			claim := object("PersistentVolumeClaim", "claim", ownedBy("root"), set("v", "spec", "volumeName"), deleting)
			var there []*unstructured.Unstructured
			if tt.volume != nil {
				there = append(there, tt.volume)
			}
			w := deleted(t, []*unstructured.Unstructured{root, claim}, there...)
			report := w.ends(t, "ConfigMap", "root", ownership.UndeletionComplete, "root Restored", "claim Left")
			got := report.Items[1].ReasonFor(func(*Item) bool { return true })
			if want := "it was already being deleted; " + tt.want; got != want {
				t.Errorf("reason %q, want %q", got, want)
			}
		})
	}
}

// claimUID returns the UID in the claimRef of volume v.
func (w *world) claimUID(t *testing.T) string {
	t.Helper()
	found, err := w.client.Tracker().Get(volumes.GroupVersionResource, "", "v")
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _, _ := unstructured.NestedString(found.(*unstructured.Unstructured).Object, "spec", "claimRef", "uid")
	return uid
}

// TestVolumeComesBack checks that a restored volume is bound to its former claim and available to
// no other.
func TestVolumeComesBack(t *testing.T) {
	w := newWorld(t, &memory{})
	u := &undeletion{Cluster: w.cluster}
	volume := itemOf(object("PersistentVolume", "v", claimedBy("claim", "claim")), nil)
	u.root = volume
	ref, _, _ := unstructured.NestedMap(u.desired(volume, nil).Object, "spec", "claimRef")
	if ref["uid"] != "claim" || ref["resourceVersion"] != nil {
		t.Errorf("claimRef %v", ref)
	}
}
