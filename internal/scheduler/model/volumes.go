// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/component-helpers/storage/volume"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Volumes has the objects that decide on which nodes a pod's volumes are available.
//
// A claim or volume may be assumed: until the object changes in the API, it is seen as it will be
// once a decision about it has been written. So no later decision gives the volume to another claim.
// The assumption ends with the decision: when the pod is bound, or has failed.
type Volumes struct {
	Classes    Table[string, *storagev1.StorageClass]
	CSINodes   Table[string, *storagev1.CSINode]
	Drivers    Table[string, *storagev1.CSIDriver]
	Capacities Table[types.NamespacedName, *storagev1.CSIStorageCapacity]

	claims         Table[types.NamespacedName, *v1.PersistentVolumeClaim]
	volumes        Table[string, *v1.PersistentVolume]
	assumedClaims  assumptions[types.NamespacedName, *v1.PersistentVolumeClaim]
	assumedVolumes assumptions[string, *v1.PersistentVolume]
	// attachments has the attachments of each node, by name.
	attachments map[string]Table[string, *storagev1.VolumeAttachment]
}

func newVolumes() *Volumes {
	return &Volumes{
		Classes:        Table[string, *storagev1.StorageClass]{},
		CSINodes:       Table[string, *storagev1.CSINode]{},
		Drivers:        Table[string, *storagev1.CSIDriver]{},
		Capacities:     Table[types.NamespacedName, *storagev1.CSIStorageCapacity]{},
		claims:         Table[types.NamespacedName, *v1.PersistentVolumeClaim]{},
		volumes:        Table[string, *v1.PersistentVolume]{},
		assumedClaims:  assumptions[types.NamespacedName, *v1.PersistentVolumeClaim]{},
		assumedVolumes: assumptions[string, *v1.PersistentVolume]{},
		attachments:    map[string]Table[string, *storagev1.VolumeAttachment]{},
	}
}

// Key returns the namespace and name of an object.
func Key(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Claim returns a claim, as assumed if it is, or nil.
func (v *Volumes) Claim(key types.NamespacedName) *v1.PersistentVolumeClaim {
	return v.assumedClaims.over(v.claims, key)
}

// StoredClaim returns a claim as the API has it, or nil.
func (v *Volumes) StoredClaim(key types.NamespacedName) *v1.PersistentVolumeClaim {
	return v.claims[key]
}

// Volume returns a volume, as assumed if it is, or nil.
func (v *Volumes) Volume(name string) *v1.PersistentVolume {
	return v.assumedVolumes.over(v.volumes, name)
}

// StoredVolume returns a volume as the API has it, or nil.
func (v *Volumes) StoredVolume(name string) *v1.PersistentVolume { return v.volumes[name] }

// SetClaim adds or updates a claim, and returns its former state, or nil.
func (v *Volumes) SetClaim(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	return v.claims.Set(Key(claim), claim)
}

// WroteClaim updates a claim with what the scheduler has written. See [Table.Written].
func (v *Volumes) WroteClaim(claim *v1.PersistentVolumeClaim) bool {
	return v.claims.Written(Key(claim), claim)
}

// RemoveClaim removes a claim.
func (v *Volumes) RemoveClaim(key types.NamespacedName) { delete(v.claims, key) }

// SetVolume adds or updates a volume, and returns its former state, or nil.
func (v *Volumes) SetVolume(object *v1.PersistentVolume) *v1.PersistentVolume {
	return v.volumes.Set(object.Name, object)
}

// WroteVolume updates a volume with what the scheduler has written. See [Table.Written].
func (v *Volumes) WroteVolume(object *v1.PersistentVolume) bool {
	return v.volumes.Written(object.Name, object)
}

// RemoveVolume removes a volume.
func (v *Volumes) RemoveVolume(name string) { delete(v.volumes, name) }

// Matching returns the volumes of a class that are free and not on hold, or belong to one of the
// claims, ordered by name.
func (v *Volumes) Matching(class string, claims []*v1.PersistentVolumeClaim) []*v1.PersistentVolume {
	var matching []*v1.PersistentVolume
	for name := range v.volumes {
		object := v.Volume(name)
		if volume.GetPersistentVolumeClass(object) != class || !mayTake(object, claims) {
			continue
		}
		matching = append(matching, object)
	}
	slices.SortFunc(matching, func(a, b *v1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	return matching
}

func mayTake(object *v1.PersistentVolume, claims []*v1.PersistentVolumeClaim) bool {
	if object.Spec.ClaimRef == nil {
		return !ownership.IsHeld(object)
	}
	return slices.ContainsFunc(claims, func(claim *v1.PersistentVolumeClaim) bool {
		return volume.IsVolumeBoundToClaim(object, claim)
	})
}

// SetAttachment adds or updates a VolumeAttachment.
func (v *Volumes) SetAttachment(a *storagev1.VolumeAttachment) {
	of := v.attachments[a.Spec.NodeName]
	if of == nil {
		of = Table[string, *storagev1.VolumeAttachment]{}
		v.attachments[a.Spec.NodeName] = of
	}
	of.Set(a.Name, a)
}

// RemoveAttachment removes a VolumeAttachment.
func (v *Volumes) RemoveAttachment(a *storagev1.VolumeAttachment) {
	of := v.attachments[a.Spec.NodeName]
	if delete(of, a.Name); len(of) == 0 {
		delete(v.attachments, a.Spec.NodeName)
	}
}

// Attachments returns the VolumeAttachments of a node.
func (v *Volumes) Attachments(node string) Table[string, *storagev1.VolumeAttachment] {
	return v.attachments[node]
}

// Table has the newest known state of each object of a kind.
type Table[K comparable, T metav1.Object] map[K]T

// Set adds or updates an object, and returns its former state, or nil. A state that is older than
// the known one is ignored: what the scheduler writes is known before the watch shows it.
func (t Table[K, T]) Set(key K, object T) T {
	before, found := t[key]
	if found && before.GetUID() == object.GetUID() && isOlder(object, before) {
		return before
	}
	t[key] = object
	return before
}

// Written updates an object with what the scheduler has written, unless the object was deleted or
// replaced in the meantime. It reports whether the object was updated.
func (t Table[K, T]) Written(key K, object T) bool {
	before, found := t[key]
	if !found || before.GetUID() != object.GetUID() || isOlder(object, before) {
		return false
	}
	t[key] = object
	return true
}

func isOlder(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// assumptions are objects as they will be once a decision has been written.
type assumptions[K comparable, T metav1.Object] map[K]*assumption[T]

type assumption[T metav1.Object] struct {
	object T
	// pods are the pods whose decisions need it.
	pods map[types.UID]bool
}

func (a assumptions[K, T]) add(key K, object T, pod types.UID) {
	if a[key] == nil {
		a[key] = &assumption[T]{pods: map[types.UID]bool{}}
	}
	a[key].object = object
	a[key].pods[pod] = true
}

// over returns an object as assumed. If the stored object has changed since, it is returned instead:
// it has the outcome of the decision.
func (a assumptions[K, T]) over(stored Table[K, T], key K) T {
	object, found := stored[key]
	assumed := a[key]
	if !found || assumed == nil || assumed.object.GetUID() != object.GetUID() || assumed.object.GetResourceVersion() != object.GetResourceVersion() {
		return object
	}
	return assumed.object
}

// release ends a pod's need of an assumption.
func (a assumptions[K, T]) release(key K, pod types.UID) {
	assumed := a[key]
	if assumed == nil {
		return
	}
	if delete(assumed.pods, pod); len(assumed.pods) == 0 {
		delete(a, key)
	}
}
