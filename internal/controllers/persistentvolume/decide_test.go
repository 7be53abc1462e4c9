// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	completed     = "pv.kubernetes.io/bind-completed"
	byController  = "pv.kubernetes.io/bound-by-controller"
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

func newClaimOf(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "uid-data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: size("1Gi")},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func newVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    size("1Gi"),
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func size(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
}

func capacity(s string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.Capacity = size(s) }
}

func modes(m ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.AccessModes = m }
}

func refTo(name, uid string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID(uid)}
	}
}

func ofClass(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = name }
}

func phase(p corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Status.Phase = p }
}

func policy(p corev1.PersistentVolumeReclaimPolicy) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = p }
}

func annotated[T metav1.Object](key, value string) func(T) {
	return func(obj T) {
		all := obj.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		obj.SetAnnotations(all)
	}
}

func class(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func names(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name }
}

func newClass(name, provisioner string, mode storagev1.VolumeBindingMode, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestDecideClaim(t *testing.T) {
	type C = *corev1.PersistentVolumeClaim
	type V = *corev1.PersistentVolume
	delayed := newClass("delayed", "example.com/disk", storagev1.VolumeBindingWaitForFirstConsumer)
	immediate := newClass("immediate", "example.com/disk", storagev1.VolumeBindingImmediate)
	static := newClass("static", "kubernetes.io/no-provisioner", storagev1.VolumeBindingImmediate)
	standard := newClass("standard", "example.com/disk", storagev1.VolumeBindingImmediate, annotated[*storagev1.StorageClass](isDefaultClass, "true"))
	for name, c := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		around surroundings
		bind   string
		class  string
		asks   string
		phase  corev1.PersistentVolumeClaimPhase
		event  string
	}{
		"the smallest volume that fits": {
			claim:  newClaimOf(),
			around: surroundings{volumes: []V{newVolume("large", capacity("9Gi")), newVolume("fits", capacity("2Gi")), newVolume("small", capacity("1Mi"))}},
			bind:   "fits",
		},
		"a volume with fewer access modes before a smaller one": {
			claim:  newClaimOf(),
			around: surroundings{volumes: []V{newVolume("many", modes(corev1.ReadWriteOnce, corev1.ReadWriteMany)), newVolume("one", capacity("5Gi"))}},
			bind:   "one",
		},
		"not a volume without the access mode": {
			claim:  newClaimOf(),
			around: surroundings{volumes: []V{newVolume("many", modes(corev1.ReadWriteMany))}},
			phase:  corev1.ClaimPending,
			event:  "Normal FailedBinding no persistent volumes available for this claim and no storage class is set",
		},
		"ReadWriteOncePod needs a volume with that mode": {
			claim:  newClaimOf(func(c C) { c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod} }),
			around: surroundings{volumes: []V{newVolume("once"), newVolume("pod", modes(corev1.ReadWriteOncePod))}},
			bind:   "pod",
		},
		"a volume that names the claim, even if delayed": {
			claim:  newClaimOf(class("delayed")),
			around: surroundings{classes: []*storagev1.StorageClass{delayed}, volumes: []V{newVolume("free", ofClass("delayed")), newVolume("mine", refTo("data", ""), capacity("9Gi"))}},
			bind:   "mine",
		},
		"not a volume that names a former claim of the name": {
			claim:  newClaimOf(class("")),
			around: surroundings{volumes: []V{newVolume("former", refTo("data", "uid-former"))}},
			phase:  corev1.ClaimPending,
			event:  "Normal FailedBinding no persistent volumes available for this claim and no storage class is set",
		},
		"not a volume of another class": {
			claim:  newClaimOf(class("immediate")),
			around: surroundings{classes: []*storagev1.StorageClass{immediate}, volumes: []V{newVolume("v", ofClass("delayed"))}},
			asks:   "example.com/disk", phase: corev1.ClaimPending,
			event: "Normal ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
		},
		"not an available volume if delayed": {
			claim:  newClaimOf(class("delayed")),
			around: surroundings{classes: []*storagev1.StorageClass{delayed}, volumes: []V{newVolume("v", ofClass("delayed"))}},
			phase:  corev1.ClaimPending,
			event:  "Normal WaitForFirstConsumer waiting for first consumer to be created before binding",
		},
		"delayed, with a pod": {
			claim:  newClaimOf(class("delayed")),
			around: surroundings{classes: []*storagev1.StorageClass{delayed}, waiting: []string{"a"}},
			phase:  corev1.ClaimPending,
			event:  "Normal WaitForPodScheduled waiting for pod a to be scheduled",
		},
		"delayed, with pods": {
			claim:  newClaimOf(class("delayed")),
			around: surroundings{classes: []*storagev1.StorageClass{delayed}, waiting: []string{"a", "b"}},
			phase:  corev1.ClaimPending,
			event:  "Normal WaitForPodScheduled waiting for pods a,b to be scheduled",
		},
		"delayed, with a node": {
			claim:  newClaimOf(class("delayed"), annotated[C](selectedNode, "n")),
			around: surroundings{classes: []*storagev1.StorageClass{delayed}},
			asks:   "example.com/disk", phase: corev1.ClaimPending,
			event: "Normal ExternalProvisioning Waiting for a volume to be created either by the external provisioner 'example.com/disk' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
		},
		"the default class": {
			claim:  newClaimOf(),
			around: surroundings{classes: []*storagev1.StorageClass{immediate, standard}},
			class:  "standard",
		},
		"no default class for a claim that wants none": {
			claim:  newClaimOf(class("")),
			around: surroundings{classes: []*storagev1.StorageClass{standard}},
			phase:  corev1.ClaimPending,
			event:  "Normal FailedBinding no persistent volumes available for this claim and no storage class is set",
		},
		"an available volume before the default class": {
			claim:  newClaimOf(),
			around: surroundings{classes: []*storagev1.StorageClass{standard}, volumes: []V{newVolume("v")}},
			bind:   "v",
		},
		"a class that is missing": {
			claim: newClaimOf(class("missing")),
			phase: corev1.ClaimPending,
			event: `Warning ProvisioningFailed storageclass.storage.k8s.io "missing" not found`,
		},
		"a class without a provisioner": {
			claim:  newClaimOf(class("static")),
			around: surroundings{classes: []*storagev1.StorageClass{static}},
			phase:  corev1.ClaimPending,
			event:  "Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner",
		},
		"the volume that it names": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v")}, bind: "v",
		},
		"a volume that it names and that is missing": {
			claim: newClaimOf(names("v")), phase: corev1.ClaimPending,
		},
		"a volume that it names and that is too small": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", capacity("1Mi"))},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": requested PV is too small`,
		},
		"a volume that it names, of another class": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", ofClass("x"))},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": storageClassName does not match`,
		},
		"a volume that it names, of another mode": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", func(v V) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": incompatible volumeMode`,
		},
		"a volume that it names, without its access mode": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", modes(corev1.ReadOnlyMany))},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": incompatible accessMode`,
		},
		"a volume that it names, of other attributes": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", func(v V) { v.Spec.VolumeAttributesClassName = ptr.To("gold") })},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": volumeAttributesClassName does not match`,
		},
		"a volume that it names and that is being deleted": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", func(v V) { v.DeletionTimestamp = &metav1.Time{} })},
			phase: corev1.ClaimPending, event: `Warning VolumeMismatch Cannot bind to requested volume "v": the volume is marked for deletion "v"`,
		},
		"both name each other: nothing is checked": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", refTo("data", ""), capacity("1Mi"))}, bind: "v",
		},
		"a volume that it names and that names another claim": {
			claim: newClaimOf(names("v")), around: surroundings{named: newVolume("v", refTo("other", "uid-other"))},
			phase: corev1.ClaimPending, event: `Warning FailedBinding volume "v" already bound to a different claim.`,
		},
		"bound": {
			claim: newClaimOf(names("v"), annotated[C](completed, "yes")), around: surroundings{named: newVolume("v", refTo("data", "uid-data"))}, bind: "v",
		},
		"bound, but the volume lost its claimRef": {
			claim: newClaimOf(names("v"), annotated[C](completed, "yes")), around: surroundings{named: newVolume("v")}, bind: "v",
		},
		"bound to a volume that is gone": {
			claim: newClaimOf(names("v"), annotated[C](completed, "yes")),
			phase: corev1.ClaimLost, event: "Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!",
		},
		"bound, without the volume's name": {
			claim: newClaimOf(annotated[C](completed, "yes")), around: surroundings{volumes: []V{newVolume("v")}},
			phase: corev1.ClaimLost, event: "Warning ClaimLost Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
		},
		"bound to a volume that names another claim": {
			claim: newClaimOf(names("v"), annotated[C](completed, "yes")), around: surroundings{named: newVolume("v", refTo("data", "uid-other"))},
			phase: corev1.ClaimLost, event: "Warning ClaimMisbound Two claims are bound to the same volume, this one is bound incorrectly",
		},
	} {
		t.Run(name, func(t *testing.T) {
			step, err := decideClaim(c.claim, c.around)
			if err != nil {
				t.Fatal(err)
			}
			bind := ""
			if step.bind != nil {
				bind = step.bind.Name
			}
			if bind != c.bind || step.class != c.class || step.provisioner != c.asks || step.phase != c.phase {
				t.Errorf("got bind %q, class %q, provisioner %q, phase %q, want %q, %q, %q, %q", bind, step.class, step.provisioner, step.phase, c.bind, c.class, c.asks, c.phase)
			}
			if got := text(step.event); got != c.event {
				t.Errorf("got event\n%q, want\n%q", got, c.event)
			}
		})
	}
}

func text(e eventRecord) string {
	if e.reason == "" {
		return ""
	}
	return e.kind + " " + e.reason + " " + e.message
}

func TestDecideVolume(t *testing.T) {
	type V = *corev1.PersistentVolume
	const remove, retain, recycle = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimRecycle
	mine := refTo("data", "uid-data")
	for name, c := range map[string]struct {
		volume   *corev1.PersistentVolume
		claim    *corev1.PersistentVolumeClaim
		phase    corev1.PersistentVolumePhase
		unbind   bool
		event    string
		mismatch string
	}{
		"free":                               {volume: newVolume("v", phase("")), phase: corev1.VolumeAvailable},
		"names a claim without a UID":        {volume: newVolume("v", refTo("data", ""), phase("")), phase: corev1.VolumeAvailable},
		"bound":                              {volume: newVolume("v", mine), claim: newClaimOf(names("v")), phase: corev1.VolumeBound},
		"the claim's step follows":           {volume: newVolume("v", mine), claim: newClaimOf()},
		"claim gone":                         {volume: newVolume("v", mine, phase(corev1.VolumeBound), policy(remove)), phase: corev1.VolumeReleased},
		"claim gone, retained":               {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy(retain))},
		"failed before":                      {volume: newVolume("v", mine, phase(corev1.VolumeFailed), policy(retain))},
		"deleted by its provisioner":         {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy(remove), annotated[V](provisionedBy, "example.com/disk"))},
		"deleted by its driver":              {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy(remove), func(v V) { v.Spec.CSI = &corev1.CSIPersistentVolumeSource{} })},
		"nobody deletes it":                  {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy(remove)), phase: corev1.VolumeFailed, event: `Warning VolumeFailedDelete error getting deleter volume plugin for volume "v": no deletable volume plugin matched`},
		"recycling":                          {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy(recycle)), phase: corev1.VolumeFailed, event: "Warning VolumeFailedRecycle No recycler plugin found for the volume!"},
		"unknown policy":                     {volume: newVolume("v", mine, phase(corev1.VolumeReleased), policy("x")), phase: corev1.VolumeFailed, event: "Warning VolumeUnknownReclaimPolicy Volume has unrecognized PersistentVolumeReclaimPolicy"},
		"claim has another volume":           {volume: newVolume("v", mine), claim: newClaimOf(names("other")), unbind: true},
		"claim has another, was made for it": {volume: newVolume("v", mine, policy(remove), annotated[V](provisionedBy, "example.com/disk")), claim: newClaimOf(names("other")), phase: corev1.VolumeReleased},
		"claim has another, was made for it, retained": {volume: newVolume("v", mine, policy(retain), annotated[V](provisionedBy, "example.com/disk")), claim: newClaimOf(names("other")), unbind: true},
		"claim has another mode": {
			volume: newVolume("v", mine, func(v V) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }), claim: newClaimOf(),
			mismatch: `Cannot bind PersistentVolume to requested PersistentVolumeClaim "data" due to incompatible volumeMode.`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := decideVolume(c.volume, c.claim)
			if step.phase != c.phase || step.unbind != c.unbind || text(step.event) != c.event || step.volumeMismatch.message != c.mismatch {
				t.Errorf("got %+v", step)
			}
		})
	}
}

func TestUnboundKeepsWhatAUserWrote(t *testing.T) {
	byUser := unbound(newVolume("v", refTo("data", "uid-data")))
	if ref := byUser.Spec.ClaimRef; ref == nil || ref.Name != "data" || ref.UID != "" {
		t.Errorf("claimRef of the user: %v", ref)
	}
	v := newVolume("v", refTo("data", "uid-data"), annotated[*corev1.PersistentVolume](byController, "yes"))
	if got := unbound(v); got.Spec.ClaimRef != nil || got.Annotations[byController] != "" {
		t.Errorf("claimRef of the controller: %v, annotations %v", got.Spec.ClaimRef, got.Annotations)
	}
	if v.Spec.ClaimRef == nil {
		t.Error("the cached volume was changed")
	}
}

func TestDefaultClass(t *testing.T) {
	at := func(seconds int64) func(*storagev1.StorageClass) {
		return func(c *storagev1.StorageClass) { c.CreationTimestamp = metav1.NewTime(time.Unix(seconds, 0)) }
	}
	isDefault := annotated[*storagev1.StorageClass](isDefaultClass, "true")
	beta := annotated[*storagev1.StorageClass](isDefaultClassBeta, "true")
	of := func(name string, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
		return newClass(name, "p", storagev1.VolumeBindingImmediate, change...)
	}
	for name, c := range map[string]struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		"none":                {classes: []*storagev1.StorageClass{of("a")}},
		"one":                 {classes: []*storagev1.StorageClass{of("a"), of("b", beta)}, want: "b"},
		"the newest":          {classes: []*storagev1.StorageClass{of("a", isDefault, at(1)), of("b", isDefault, at(2))}, want: "b"},
		"of one age, by name": {classes: []*storagev1.StorageClass{of("b", isDefault, at(1)), of("a", isDefault, at(1))}, want: "a"},
	} {
		got := ""
		if d := defaultClass(c.classes); d != nil {
			got = d.Name
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
