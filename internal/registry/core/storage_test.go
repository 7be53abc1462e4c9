// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// wantProblems compares errors, in any order, with how they begin.
func wantProblems(t *testing.T, name string, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s:\n got  %q\n want %q", name, got, want)
	}
}

// cells returns the cells of a kind's own columns.
func cells[T generic.Object](kind generic.Kind[T], obj T) []any {
	var out []any
	for _, column := range kind.Columns {
		out = append(out, column.Cell(obj))
	}
	return out
}

// amounts parses a resource list, such as "cpu=1 memory=1Gi".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for item := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(item, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(value)
	}
	return list
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func volumes() generic.Kind[*corev1.PersistentVolume] {
	return persistentVolume(clocktesting.NewFakePassiveClock(noon))
}

func newVolume(change func(*corev1.PersistentVolumeSpec)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      amounts("storage=1Gi"),
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
	}}
	change(&v.Spec)
	return v
}

func onNode(key string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}
}

func TestPersistentVolume(t *testing.T) {
	source := func(s corev1.PersistentVolumeSource) func(*corev1.PersistentVolumeSpec) {
		return func(spec *corev1.PersistentVolumeSpec) { spec.PersistentVolumeSource = s }
	}
	csi := func(c corev1.CSIPersistentVolumeSource) func(*corev1.PersistentVolumeSpec) {
		return source(corev1.PersistentVolumeSource{CSI: &c})
	}
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolumeSpec)
		want   []string
	}{
		"good":        {func(*corev1.PersistentVolumeSpec) {}, nil},
		"no modes":    {func(s *corev1.PersistentVolumeSpec) { s.AccessModes = nil }, []string{"spec.accessModes: Required value"}},
		"no mode":     {func(s *corev1.PersistentVolumeSpec) { s.AccessModes[0] = "RWO" }, []string{`spec.accessModes: Unsupported value: "RWO": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`}},
		"alone":       {func(s *corev1.PersistentVolumeSpec) { s.AccessModes = append(s.AccessModes, "ReadWriteOncePod") }, []string{"spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"}},
		"no capacity": {func(s *corev1.PersistentVolumeSpec) { s.Capacity = nil }, []string{"spec.capacity: Required value", `spec.capacity: Unsupported value: null: supported values: "storage"`}},
		"more":        {func(s *corev1.PersistentVolumeSpec) { s.Capacity["cpu"] = resource.MustParse("1") }, []string{"spec.capacity: Unsupported value"}},
		"nothing":     {func(s *corev1.PersistentVolumeSpec) { s.Capacity = amounts("storage=0") }, []string{`spec.capacity[storage]: Invalid value: "0": must be greater than zero`}},
		"less":        {func(s *corev1.PersistentVolumeSpec) { s.Capacity = amounts("storage=-1") }, []string{`spec.capacity[storage]: Invalid value: "-1": must be greater than zero`, "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity"}},
		"policy":      {func(s *corev1.PersistentVolumeSpec) { s.PersistentVolumeReclaimPolicy = "Burn" }, []string{`spec.persistentVolumeReclaimPolicy: Unsupported value: "Burn": supported values: "Delete", "Recycle", "Retain"`}},
		"class":       {func(s *corev1.PersistentVolumeSpec) { s.StorageClassName = "A" }, []string{`spec.storageClassName: Invalid value: "A"`}},
		"mode":        {func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = new(corev1.PersistentVolumeMode("Tape")) }, []string{`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`}},
		"affinity":    {func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = &corev1.VolumeNodeAffinity{} }, []string{"spec.nodeAffinity.required: Required value: must specify required node constraints"}},
		"root": {func(s *corev1.PersistentVolumeSpec) {
			s.HostPath.Path, s.PersistentVolumeReclaimPolicy = "/./", "Recycle"
		},
			[]string{"spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"}},
		"no source":   {source(corev1.PersistentVolumeSource{}), []string{"spec: Required value: must specify a volume type"}},
		"two sources": {func(s *corev1.PersistentVolumeSpec) { s.NFS = &corev1.NFSVolumeSource{} }, []string{"spec.nfs: Forbidden: may not specify more than 1 volume type"}},
		"beside":      {func(s *corev1.PersistentVolumeSpec) { s.FlexVolume = &corev1.FlexPersistentVolumeSource{Driver: "d"} }, nil},
		"local":       {source(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}), []string{"spec.local.path: Required value", "spec.nodeAffinity: Required value: Local volume requires node affinity"}},
		"local with affinity": {func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/a/../b"}}
			s.NodeAffinity = onNode("kubernetes.io/hostname")
		}, []string{`spec.local.path: Invalid value: "/a/../b": must not contain '..'`}},
		"csi": {csi(corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", NodeStageSecretRef: &corev1.SecretReference{}}), nil},
		"csi, incomplete": {csi(corev1.CSIPersistentVolumeSource{NodeExpandSecretRef: &corev1.SecretReference{Name: "A"}}),
			[]string{"spec.csi.driver: Required value", "spec.csi.nodeExpandSecretRef.name: Invalid value", "spec.csi.nodeExpandSecretRef.namespace: Required value", "spec.csi.volumeHandle: Required value"}},
		"attributes class without csi": {func(s *corev1.PersistentVolumeSpec) { s.VolumeAttributesClassName = new("") },
			[]string{"spec.csi: Required value: has to be specified when using volumeAttributesClassName", "spec.volumeAttributesClassName: Required value: an empty string is disallowed"}},
		"iscsi": {source(corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: strings.Repeat("p", 60), IQN: "x", InitiatorName: new("iqn.bad"), SecretRef: &corev1.SecretReference{}}}),
			[]string{`spec.iscsi.initiatorname: Invalid value: "iqn.bad": must be valid format`, `spec.iscsi.iqn: Invalid value: "x": must be valid format`, "spec.iscsi.secretRef.name: Required value", "spec.iscsi.targetportal: Invalid value"}},
		"glusterfs": {source(corev1.PersistentVolumeSource{Glusterfs: &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "e", Path: "p", EndpointsNamespace: new("")}}),
			[]string{`spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name`}},
		"cinder": {source(corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "v", SecretRef: &corev1.SecretReference{Name: "s"}}}), []string{"spec.cinder.secretRef.namespace: Required value"}},
		"azure":  {source(corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{ShareName: "s", SecretNamespace: new("")}}), []string{"spec.azureFile.secretName: Required value", "spec.azureFile.secretNamespace: Required value"}},
		"flex":   {source(corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Options: map[string]string{"a.k8s.io/x": "y"}}}), []string{"spec.flexVolume.driver: Required value", `spec.flexVolume.options[a.k8s.io/x]: Invalid value: "a.k8s.io/x": kubernetes.io and k8s.io namespaces are reserved`}},
		"others": {source(corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}), []string{"spec.rbd.image: Required value", "spec.rbd.monitors: Required value"}},
		"ceph":   {source(corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{}}), []string{"spec.cephfs.monitors: Required value"}},
		"scaleio": {source(corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{}}),
			[]string{"spec.scaleIO.gateway: Required value", "spec.scaleIO.system: Required value", "spec.scaleIO.volumeName: Required value"}},
		"storageos": {source(corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{VolumeNamespace: "A", SecretRef: &corev1.ObjectReference{Name: "n"}}}),
			[]string{"spec.storageos.secretRef.namespace: Required value", "spec.storageos.volumeName: Required value", `spec.storageos.volumeNamespace: Invalid value: "A"`}},
	} {
		wantProblems(t, name, checktest.Errors(t.Context(), volumes().Validate, newVolume(test.change)), test.want...)
	}
	mounted := newVolume(func(*corev1.PersistentVolumeSpec) {})
	mounted.Annotations = map[string]string{corev1.MountOptionAnnotation: "ro"}
	wantProblems(t, "mount options", checktest.Errors(t.Context(), volumes().Validate, mounted),
		"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type")
	mounted.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}
	wantProblems(t, "mount options of NFS", checktest.Errors(t.Context(), volumes().Validate, mounted))
}

func TestPersistentVolumeUpdate(t *testing.T) {
	csi := func(s *corev1.PersistentVolumeSpec) {
		s.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}
		s.VolumeAttributesClassName = new("fast")
		s.NodeAffinity = onNode("beta.kubernetes.io/arch")
	}
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolumeSpec)
		want   []string
	}{
		"allowed changes": {func(s *corev1.PersistentVolumeSpec) {
			s.Capacity, s.PersistentVolumeReclaimPolicy, s.ClaimRef = amounts("storage=2Gi"), "Delete", &corev1.ObjectReference{Name: "c"}
			s.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Name: "s", Namespace: "n"}
			s.VolumeAttributesClassName = new("slow")
		}, nil},
		"source":                   {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "i" }, []string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"}},
		"mode":                     {func(s *corev1.PersistentVolumeSpec) { s.VolumeMode = new(corev1.PersistentVolumeBlock) }, []string{"volumeMode: Invalid value: \"Block\": field is immutable"}},
		"stable label":             {func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = onNode("kubernetes.io/arch") }, nil},
		"another label":            {func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = onNode("kubernetes.io/os") }, []string{"nodeAffinity: Invalid value"}},
		"affinity removed":         {func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = nil }, []string{"nodeAffinity: Invalid value: null: field is immutable, except for updating from beta label to GA"}},
		"attributes class removed": {func(s *corev1.PersistentVolumeSpec) { s.VolumeAttributesClassName = nil }, []string{"spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"}},
	} {
		old := newVolume(csi)
		v := old.DeepCopy()
		test.change(&v.Spec)
		wantProblems(t, name, checktest.UpdateErrors(t.Context(), volumes().ValidateUpdate, v, old), test.want...)
	}
}

func TestPhaseTransition(t *testing.T) {
	before, given := metav1.NewTime(noon.Add(-time.Hour)), metav1.NewTime(noon.Add(-time.Minute))
	v := &corev1.PersistentVolume{}
	volumes().Prepare(t.Context(), v, nil)
	if v.Status.Phase != corev1.VolumePending || !v.Status.LastPhaseTransitionTime.Time.Equal(noon) {
		t.Errorf("new: %+v", v.Status)
	}
	old := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: "Available", LastPhaseTransitionTime: &before}}
	for name, test := range map[string]struct {
		status corev1.PersistentVolumeStatus
		want   time.Time
	}{
		"same phase":              {corev1.PersistentVolumeStatus{Phase: "Available"}, before.Time},
		"same phase, time set":    {corev1.PersistentVolumeStatus{Phase: "Available", LastPhaseTransitionTime: &given}, given.Time},
		"another phase":           {corev1.PersistentVolumeStatus{Phase: "Bound"}, noon},
		"another phase, old time": {corev1.PersistentVolumeStatus{Phase: "Bound", LastPhaseTransitionTime: &before}, noon},
		"another phase, time set": {corev1.PersistentVolumeStatus{Phase: "Bound", LastPhaseTransitionTime: &given}, given.Time},
	} {
		v := &corev1.PersistentVolume{Status: test.status}
		volumes().StatusUpdate.Prepare(t.Context(), v, old)
		if got := v.Status.LastPhaseTransitionTime; !got.Time.Equal(test.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPersistentVolumeWarnings(t *testing.T) {
	v := newVolume(func(s *corev1.PersistentVolumeSpec) {
		s.PersistentVolumeReclaimPolicy = "Recycle"
		s.NodeAffinity = onNode("beta.kubernetes.io/os")
		s.RBD = &corev1.RBDPersistentVolumeSource{}
	})
	v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "a", corev1.MountOptionAnnotation: "b"}
	want := []string{
		`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
		`metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; use "mountOptions" attribute instead`,
		"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
		`spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`,
		"spec.rbd: deprecated in v1.28, non-functional in v1.31+",
	}
	if diff := cmp.Diff(want, volumes().Warnings(t.Context(), v, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestPersistentVolumeColumns(t *testing.T) {
	v := newVolume(func(s *corev1.PersistentVolumeSpec) {
		s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOnce, corev1.ReadOnlyMany}
		s.ClaimRef, s.StorageClassName, s.VolumeMode = &corev1.ObjectReference{Namespace: "n", Name: "c"}, "fast", nil
	})
	v.Status = corev1.PersistentVolumeStatus{Phase: "Bound", Reason: "why"}
	if diff := cmp.Diff([]any{"1Gi", "RWO,ROX", "Retain", "Bound", "n/c", "fast", "<unset>", "why", "<unset>"}, cells(volumes(), v)); diff != "" {
		t.Error(diff)
	}
	v.DeletionTimestamp = &metav1.Time{}
	v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "old"}
	v.Spec.ClaimRef, v.Spec.VolumeAttributesClassName = nil, new("gold")
	if diff := cmp.Diff([]any{"1Gi", "RWO,ROX", "Retain", "Terminating", "", "old", "gold", "why", "<unset>"}, cells(volumes(), v)); diff != "" {
		t.Error(diff)
	}
}
