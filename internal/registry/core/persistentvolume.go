// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/podspec"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// persistentVolume is a piece of storage that can be bound to one claim.
func persistentVolume(c clock.PassiveClock) generic.Kind[*corev1.PersistentVolume] {
	return generic.Kind[*corev1.PersistentVolume]{
		Name: "PersistentVolume", Plural: "persistentvolumes", ShortNames: []string{"pv"}, ClusterScoped: true,
		New:        func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
		NewList:    func() runtime.Object { return &corev1.PersistentVolumeList{} },
		Deletion:   generic.Deletion[*corev1.PersistentVolume]{ReturnObject: true},
		Generation: generic.NoGeneration,
		Metadata:   generic.Metadata{ValidateAsNew: true},
		Spec:       func(v *corev1.PersistentVolume) any { return &v.Spec },
		Status:     func(v *corev1.PersistentVolume) any { return &v.Status },
		Prepare: func(_ context.Context, v, old *corev1.PersistentVolume) {
			if old == nil {
				v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: now(c)}
			}
		},
		StatusUpdate: generic.Update[*corev1.PersistentVolume]{Prepare: func(_ context.Context, v, old *corev1.PersistentVolume) { notePhase(c, &v.Status, &old.Status) }},
		Validate:     validatePersistentVolume,
		// Updates of the status need no validation of the spec.
		ValidateUpdate: validatePersistentVolumeUpdate,
		Warnings:       warnPersistentVolume,
		Columns: []generic.Column[*corev1.PersistentVolume]{
			{Name: "Capacity", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["capacity"], Cell: func(v *corev1.PersistentVolume) any { return v.Spec.Capacity.Storage().String() }},
			{Name: "Access Modes", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["accessModes"], Cell: func(v *corev1.PersistentVolume) any { return accessModes(v.Spec.AccessModes) }},
			{Name: "Reclaim Policy", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["persistentVolumeReclaimPolicy"], Cell: func(v *corev1.PersistentVolume) any { return string(v.Spec.PersistentVolumeReclaimPolicy) }},
			{Name: "Status", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["phase"], Cell: func(v *corev1.PersistentVolume) any { return phaseOrTerminating(v, string(v.Status.Phase)) }},
			{Name: "Claim", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["claimRef"], Cell: claimOf},
			{Name: "StorageClass", Description: "StorageClass of the pv", Cell: func(v *corev1.PersistentVolume) any {
				return classOf(v.Annotations, &v.Spec.StorageClassName)
			}},
			{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pv", Cell: func(v *corev1.PersistentVolume) any { return orUnset(v.Spec.VolumeAttributesClassName) }},
			{Name: "Reason", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["reason"], Cell: func(v *corev1.PersistentVolume) any { return v.Status.Reason }},
			{Name: "VolumeMode", Wide: true, Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["volumeMode"], Cell: func(v *corev1.PersistentVolume) any { return orUnset(v.Spec.VolumeMode) }},
		},
	}
}

func now(c clock.PassiveClock) *metav1.Time { return new(metav1.NewTime(c.Now())) }

// notePhase sets the time of a phase transition (KEP-3762), unless the client has set it.
func notePhase(c clock.PassiveClock, status, old *corev1.PersistentVolumeStatus) {
	given := status.LastPhaseTransitionTime
	switch {
	case status.Phase == old.Phase && given == nil:
		status.LastPhaseTransitionTime = old.LastPhaseTransitionTime
	case status.Phase != old.Phase && (given == nil || given.Equal(old.LastPhaseTransitionTime)):
		status.LastPhaseTransitionTime = now(c)
	}
}

func claimOf(v *corev1.PersistentVolume) any {
	if v.Spec.ClaimRef == nil {
		return ""
	}
	return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
}

// The cells that volumes and claims share.

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, mode := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, mode.mode) {
			out = append(out, mode.short)
		}
	}
	return strings.Join(out, ",")
}

func phaseOrTerminating(obj metav1.Object, phase string) string {
	if obj.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return phase
}

// classOf returns the storage class, which may be in the old annotation.
func classOf(annotations map[string]string, name *string) string {
	if class, found := annotations[corev1.BetaStorageClassAnnotation]; found {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

func orUnset[S ~string](s *S) string {
	if s == nil {
		return "<unset>"
	}
	return string(*s)
}

func validatePersistentVolume(_ context.Context, c *check.Checker, v *corev1.PersistentVolume) {
	volumespec.ValidatePersistentVolumeSpec(c, &v.Spec, v.Name, field.NewPath("spec"))
	if _, found := v.Annotations[corev1.MountOptionAnnotation]; found && !takesMountOptions(&v.Spec.PersistentVolumeSource) {
		c.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type")
	}
}

// takesMountOptions reports whether the type of the volume supports the old annotation for mount
// options.
func takesMountOptions(s *corev1.PersistentVolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil ||
		s.AzureDisk != nil || s.PhotonPersistentDisk != nil
}

// validatePersistentVolumeUpdate forbids changes of the source, the mode and the affinity. The
// policies of a volume may change.
func validatePersistentVolumeUpdate(ctx context.Context, c *check.Checker, v, old *corev1.PersistentVolume) {
	validatePersistentVolume(ctx, c, v)
	if source, was := changedSource(v, old), old.Spec.PersistentVolumeSource; !equality.Semantic.DeepEqual(source, was) {
		c.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, source)))
	}
	c.Immutable(field.NewPath("volumeMode"), v.Spec.VolumeMode, old.Spec.VolumeMode)
	if was := old.Spec.NodeAffinity; was != nil && !equality.Semantic.DeepEqual(v.Spec.NodeAffinity, stableLabels(was, v.Spec.NodeAffinity)) {
		c.Invalid(field.NewPath("nodeAffinity"), v.Spec.NodeAffinity, validation.FieldImmutableErrorMsg+", except for updating from beta label to GA")
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		c.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
}

// changedSource returns the new source. It ignores a secret for expansion that is added to a CSI
// volume, which is allowed.
func changedSource(v, old *corev1.PersistentVolume) corev1.PersistentVolumeSource {
	source := v.Spec.PersistentVolumeSource
	if source.CSI == nil || old.Spec.CSI == nil || old.Spec.CSI.ControllerExpandSecretRef != nil {
		return source
	}
	csi := *source.CSI
	csi.ControllerExpandSecretRef = nil
	source.CSI = &csi
	return source
}

// stableLabel maps older node labels to their stable names.
var stableLabel = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// stableLabels returns the affinity, with an older label renamed where the new affinity has its
// stable name.
func stableLabels(affinity, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if affinity.Required == nil || now == nil || now.Required == nil {
		return affinity
	}
	affinity = affinity.DeepCopy()
	terms := now.Required.NodeSelectorTerms
	for i, term := range affinity.Required.NodeSelectorTerms[:min(len(terms), len(affinity.Required.NodeSelectorTerms))] {
		renameStable(term.MatchExpressions, terms[i].MatchExpressions)
		renameStable(term.MatchFields, terms[i].MatchFields)
	}
	return affinity
}

func renameStable(requirements, now []corev1.NodeSelectorRequirement) {
	for i := range min(len(requirements), len(now)) {
		if now[i].Key == stableLabel[requirements[i].Key] {
			requirements[i].Key = now[i].Key
		}
	}
}

// mountOptionsMoved and classMoved are warnings about annotations that became fields.
const (
	mountOptionsMoved = `deprecated since v1.31; use "mountOptions" attribute instead`
	classMoved        = `deprecated since v1.8; use "storageClassName" attribute instead`
)

func warnPersistentVolume(_ context.Context, v, _ *corev1.PersistentVolume) []string {
	var out []string
	warn := func(path *field.Path, message string) { out = append(out, fmt.Sprintf("%s: %s", path, message)) }
	spec, annotations := field.NewPath("spec"), field.NewPath("metadata", "annotations")
	for _, moved := range [][2]string{{corev1.BetaStorageClassAnnotation, classMoved}, {corev1.MountOptionAnnotation, mountOptionsMoved}} {
		if _, found := v.Annotations[moved[0]]; found {
			warn(annotations.Key(moved[0]), moved[1])
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warn(spec.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	for path, key := range affinityKeys(&v.Spec) {
		if message := podspec.NodeLabelWarning(key); message != "" {
			warn(path, fmt.Sprintf("%s is %s", key, message))
		}
	}
	for _, source := range []struct {
		name, message string
		used          bool
	}{
		{"cephfs", "deprecated in v1.28, non-functional in v1.31+", v.Spec.CephFS != nil},
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+", v.Spec.PhotonPersistentDisk != nil},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+", v.Spec.ScaleIO != nil},
		{"storageOS", "deprecated in v1.22, non-functional in v1.25+", v.Spec.StorageOS != nil},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+", v.Spec.Glusterfs != nil},
		{"rbd", "deprecated in v1.28, non-functional in v1.31+", v.Spec.RBD != nil},
	} {
		if source.used {
			warn(spec.Child(source.name), source.message)
		}
	}
	return out
}

// affinityKeys returns the node labels in a volume's node affinity, with their field paths.
func affinityKeys(spec *corev1.PersistentVolumeSpec) func(yield func(*field.Path, string) bool) {
	return func(yield func(*field.Path, string) bool) {
		affinity := cmp.Or(spec.NodeAffinity, &corev1.VolumeNodeAffinity{})
		terms := cmp.Or(affinity.Required, &corev1.NodeSelector{}).NodeSelectorTerms
		path := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms")
		for i, term := range terms {
			for j, requirement := range term.MatchExpressions {
				if !yield(path.Index(i).Child("matchExpressions").Index(j).Child("key"), requirement.Key) {
					return
				}
			}
		}
	}
}
