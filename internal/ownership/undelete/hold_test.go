// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestHoldOf checks the message and the remedy for holds of undeletions and for holds that were set
// by hand.
func TestHoldOf(t *testing.T) {
	deployments := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	byHand := &ownership.Hold{
		Message: "controllers are paused for it by its annotation ownership.kindred.dev/hold",
		Remedy:  `release it with "kubectl annotate -n shop deployment.apps/web ownership.kindred.dev/hold-"`,
	}
	of := func(m mark) map[string]string { return map[string]string{ownership.HoldAnnotation: m.text()} }
	for name, tt := range map[string]struct {
		annotations map[string]string
		kind        schema.GroupKind
		namespace   string
		deleted     bool
		want        *ownership.Hold
	}{
		"none":          {kind: deployments, namespace: "shop", annotations: map[string]string{"other": ""}},
		"by hand":       {kind: deployments, namespace: "shop", annotations: map[string]string{ownership.HoldAnnotation: ""}, want: byHand},
		"being deleted": {kind: deployments, namespace: "shop", annotations: map[string]string{ownership.HoldAnnotation: ""}, deleted: true},
		"copied by a controller": {kind: deployments, namespace: "shop", want: byHand,
			annotations: of(mark{Root: "r", From: "f", For: "ReplicaSet.apps/web", Of: "Deployment.apps/web"})},
		"without a namespace": {kind: schema.GroupKind{Kind: "PersistentVolume"}, annotations: map[string]string{ownership.HoldAnnotation: "me"}, want: &ownership.Hold{
			Message: byHand.Message,
			Remedy:  `release it with "kubectl annotate persistentvolume/web ownership.kindred.dev/hold-"`,
		}},
		"an undeletion": {kind: deployments, namespace: "shop", want: &ownership.Hold{
			Undeletion: "stack.example.com/root",
			Message:    "the undeletion of stack.example.com/root is not finished",
			Remedy:     `continue with "kindred undelete -n shop stack.example.com/root"`,
		}, annotations: of(mark{Root: "r", From: "f", For: "Deployment.apps/web", Of: "Stack.example.com/root"})},
		"an undeletion by an older version": {kind: deployments, namespace: "shop", want: &ownership.Hold{
			Undeletion: "r", Message: "the undeletion of the object that had the UID r is not finished", Remedy: "undelete that object again to continue",
		}, annotations: of(mark{Root: "r", From: "f", For: "Deployment.apps/web"})},
	} {
		t.Run(name, func(t *testing.T) {
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Name: "web", Annotations: tt.annotations}}
			if tt.deleted {
				o.DeletionTimestamp = &metav1.Time{Time: noon}
			}
			if diff := cmp.Diff(tt.want, HoldOf(o, tt.kind)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMarksNameTheRoot checks that every object on hold names the root of its undeletion.
func TestMarksNameTheRoot(t *testing.T) {
	root := itemOf(object("ReplicaSet", "root"), nil)
	child := itemOf(object("ConfigMap", "child", ownedBy("root")), nil, root)
	w := newWorld(t, &memory{})
	u := &undeletion{Cluster: w.cluster, Request: request("ReplicaSet", "root"), root: root, items: []*Item{root, child}, named: map[objectKey]*Item{}}
	hold := HoldOf(u.desired(child, nil), child.kind())
	if hold == nil || hold.Undeletion != "replicaset.apps/root" {
		t.Errorf("%+v", hold)
	}
}
