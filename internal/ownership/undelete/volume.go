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

// binding is the binding between a restored claim and its former volume. The claim names the volume
// (spec.volumeName), and the volume names the claim with its UID (spec.claimRef). A volume whose
// claimRef has the UID of a deleted claim cannot be bound until that UID is replaced.
// See https://kubernetes.io/docs/concepts/storage/persistent-volumes/#binding.
type binding struct {
	volume string
	// isGone is true if the volume does not exist.
	isGone bool
	// lost is the reason why the claim is restored without its volume; "" if it keeps the volume.
	lost string
	// available is true if the volume names no claim.
	available bool
	// stale is true if the volume still has the UID of the deleted claim.
	stale bool
	// refused is the reason why that UID cannot be replaced; "" if it can.
	refused string
}

// decideBindings decides which volumes the restored claims are bound to, and explains what happened to the
// volumes of the others. It writes nothing.
func (u *undeletion) decideBindings(ctx context.Context) error {
	for _, item := range u.items {
		if item.kind() != claimKind || volumeOf(item.then) == "" {
			continue
		}
		if err := u.decideBinding(ctx, item); err != nil {
			return err
		}
	}
	return nil
}

func (u *undeletion) decideBinding(ctx context.Context, claim *Item) error {
	willExist := claim.Outcome == ownership.UndeletionPending || claim.Outcome == ownership.UndeletionRestored && isRestored(claim)
	isGone := isLeft(claim) && claim.now == nil
	if !willExist && !isGone {
		return nil
	}
	name := volumeOf(claim.then)
	volume := u.named[objectKey{volumeKind, "", name}]
	if volume != nil && (volume.Outcome == ownership.UndeletionPending || isRestored(volume)) {
		if willExist {
			claim.binding = &binding{volume: name} // The volume is restored too, with the new UID.
		}
		return nil
	}
	now, err := u.get(ctx, volumes.GroupVersionResource, "", name)
	if err != nil {
		return err
	}
	b := bindingOf(claim, now)
	if isGone {
		claim.afterword = b.whatRemains()
		return nil
	}
	if b.stale && u.May(ctx, "patch", volumes, "", "", name) != nil {
		b.refused = "you may not patch it"
	}
	claim.binding, claim.Reason = b, b.reason()
	return nil
}

// bindingOf decides from the current volume whether a claim can be bound to it again.
func bindingOf(claim *Item, volume *unstructured.Unstructured) *binding {
	b := &binding{volume: volumeOf(claim.then)}
	if volume == nil {
		b.isGone, b.lost = true, "no longer exists"
		return b
	}
	if volume.GetDeletionTimestamp() != nil {
		b.lost = "is being deleted"
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

// reason explains the binding to the user.
func (b *binding) reason() string {
	switch {
	case b.lost != "":
		return fmt.Sprintf("its volume %s %s: the claim is restored unbound, without its data", b.volume, b.lost)
	case b.refused != "":
		return fmt.Sprintf("its volume %s still names the deleted claim, and %s: the claim stays unbound until the volume's spec.claimRef.uid is the UID of this claim", b.volume, b.refused)
	}
	if b.available {
		return fmt.Sprintf("it names its volume %s again, which is bound to no claim", b.volume)
	}
	return fmt.Sprintf("its volume %s is bound to it again", b.volume)
}

// whatRemains explains what happened to the volume of a claim that is not restored. Its controller may
// create a new claim with the same name, which would be empty without notice.
func (b *binding) whatRemains() string {
	switch {
	case b.isGone:
		return fmt.Sprintf("its volume %s no longer exists: a new claim of this name starts without its data", b.volume)
	case b.lost != "":
		return fmt.Sprintf("its volume %s %s", b.volume, b.lost)
	}
	return fmt.Sprintf("its volume %s still exists: \"kindred undelete\" of the claim restores it with its data", b.volume)
}

// volumeOf returns the name of the volume that a claim is bound to.
func volumeOf(claim *unstructured.Unstructured) string {
	volumeName, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	return volumeName
}

// setVolume writes the volume's name to a claim to be created, or removes it if the volume is lost.
func (b *binding) setVolume(claim *unstructured.Unstructured) {
	if b.lost != "" {
		unstructured.RemoveNestedField(claim.Object, "spec", "volumeName")
		return
	}
	_ = unstructured.SetNestedField(claim.Object, b.volume, "spec", "volumeName")
}

// rebind replaces the UIDs of deleted claims in their volumes by the UIDs of the restored claims.
func (u *undeletion) rebind(ctx context.Context) error {
	for _, claim := range u.items {
		b := claim.binding
		if b == nil || !b.stale || b.refused != "" || !isRestored(claim) {
			continue
		}
		before := b.reason()
		err := u.claimVolume(ctx, claim)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			b.stale = false
		case isRetryable(err):
			u.postpone("%s: its volume %s: %v", claim, b.volume, err)
			continue
		default:
			b.refused = fmt.Sprintf("it cannot be patched (%v)", err)
		}
		claim.Reason = strings.Replace(claim.Reason, before, b.reason(), 1)
	}
	return nil
}

// claimVolume replaces the UID in a volume's claimRef, if it is still that of the deleted claim.
func (u *undeletion) claimVolume(ctx context.Context, claim *Item) error {
	b := claim.binding
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := u.get(ctx, volumes.GroupVersionResource, "", b.volume)
		if err != nil {
			return err
		}
		current := bindingOf(claim, now)
		if b.lost = current.lost; !current.stale {
			return nil // Another client has bound or deleted the volume.
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
			b.lost = "no longer exists"
			return nil
		}
		return err
	})
}
