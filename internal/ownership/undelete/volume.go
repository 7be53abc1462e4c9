// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

var (
	claimKind  = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volumeKind = schema.GroupKind{Kind: "PersistentVolume"}

	volumes = graph.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Kind: volumeKind.Kind, Watched: true}
)

// binding is the tie between a claim that comes back and the volume that it was bound to. The
// claim names the volume (spec.volumeName), and the volume the claim, with its UID
// (spec.claimRef): a volume whose claimRef has the UID of a deleted claim is bound to no other one
// until that UID is replaced.
// See https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding.
type binding struct {
	volume string
	// lost is why the claim comes back without its volume; "" if it keeps it.
	lost string
	// available reports whether the volume names no claim.
	available bool
	// stale reports whether the volume still has the UID of the deleted claim.
	stale bool
	// refused is why it cannot be replaced; "" if it can.
	refused string
}

// bind decides what becomes of the volumes of the claims that come back.
func (u *undeletion) bind(ctx context.Context) error {
	for _, claim := range u.items {
		comes := claim.Outcome == ownership.UndeletionPending || claim.Outcome == ownership.UndeletionRestored && isRestored(claim)
		called := volumeOf(claim.then)
		if claim.kind() != claimKind || !comes || called == "" {
			continue
		}
		volume := u.named[name{volumeKind, "", called}]
		if volume != nil && (volume.Outcome == ownership.UndeletionPending || isRestored(volume)) {
			claim.binding = &binding{volume: called} // The volume comes back with its new UID in it.
			continue
		}
		now, err := u.get(ctx, volumes.GroupVersionResource, "", called)
		if err != nil {
			return err
		}
		claim.binding = bindingOf(claim, now)
		if claim.binding.stale {
			if u.May(ctx, "patch", volumes, "", "", called) != nil {
				claim.binding.refused = "you may not patch it"
			}
		}
		claim.Reason = claim.binding.reason()
	}
	return nil
}

// bindingOf decides whether a claim can have its volume again, from the volume as it is now.
func bindingOf(claim *Item, volume *unstructured.Unstructured) *binding {
	b := &binding{volume: volumeOf(claim.then)}
	if volume == nil || volume.GetDeletionTimestamp() != nil {
		b.lost = "does not exist any more"
		if volume != nil {
			b.lost = "is being deleted"
		}
		return b
	}
	ref, bound, _ := unstructured.NestedMap(volume.Object, "spec", "claimRef")
	uid, _ := ref["uid"].(string)
	switch {
	case !bound:
		b.available = true
	case ref["namespace"] != claim.Namespace() || ref["name"] != claim.Name():
		b.lost = "is bound to another claim"
	case uid == "" || types.UID(uid) == claim.UID():
	case claim.lineage.same(types.UID(uid), claim.FormerUID()):
		b.stale = true
	default:
		b.lost = "is bound to another claim, which had the same name"
	}
	return b
}

// reason is what there is to know about the binding.
func (b *binding) reason() string {
	switch {
	case b.lost != "":
		return fmt.Sprintf("its volume %s %s: it comes back unbound, without its data", b.volume, b.lost)
	case b.refused != "":
		return fmt.Sprintf("its volume %s still names the deleted claim, and %s: the claim stays unbound until the volume's spec.claimRef.uid is the UID of this claim", b.volume, b.refused)
	}
	if b.available {
		return fmt.Sprintf("it names its volume %s again, which is bound to no claim", b.volume)
	}
	return fmt.Sprintf("its volume %s is bound to it again", b.volume)
}

// volumeOf returns the name of the volume that a claim is bound to.
func volumeOf(claim *unstructured.Unstructured) string {
	called, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	return called
}

// keepVolume makes a claim that is to be created name its volume, or not.
func (b *binding) keepVolume(claim *unstructured.Unstructured) {
	if b.lost != "" {
		unstructured.RemoveNestedField(claim.Object, "spec", "volumeName")
		return
	}
	_ = unstructured.SetNestedField(claim.Object, b.volume, "spec", "volumeName")
}

// rebind gives volumes the new UIDs of their claims.
func (u *undeletion) rebind(ctx context.Context) error {
	for _, claim := range u.items {
		b := claim.binding
		if b == nil || !b.stale || b.refused != "" || !isRestored(claim) {
			continue
		}
		told := b.reason()
		err := u.claimVolume(ctx, claim)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			b.stale = false
		case isPassing(err):
			u.postpone("%s: its volume %s: %v", claim, b.volume, err)
			continue
		default:
			b.refused = fmt.Sprintf("it cannot be patched (%v)", err)
		}
		claim.Reason = strings.Replace(claim.Reason, told, b.reason(), 1)
	}
	return nil
}

// claimVolume replaces the UID in a volume's claimRef, if it still is that of the deleted claim.
func (u *undeletion) claimVolume(ctx context.Context, claim *Item) error {
	b := claim.binding
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := u.get(ctx, volumes.GroupVersionResource, "", b.volume)
		if err != nil {
			return err
		}
		current := bindingOf(claim, now)
		if b.lost = current.lost; !current.stale {
			return nil // Somebody else has bound it, or deleted it.
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": now.GetUID(), "resourceVersion": now.GetResourceVersion()},
			"spec":     map[string]any{"claimRef": map[string]any{"uid": claim.UID(), "resourceVersion": nil}},
		})
		if err != nil {
			return err
		}
		_, err = at(u.Caller, volumes.GroupVersionResource, "").Patch(ctx, b.volume, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
		if apierrors.IsNotFound(err) {
			b.lost = "does not exist any more"
			return nil
		}
		return err
	})
}
