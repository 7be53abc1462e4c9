// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func newClaim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: amounts("storage=10Gi")},
		VolumeMode:  new(corev1.PersistentVolumeFilesystem),
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	change(c)
	return c
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName = "disk"
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: amounts("storage=5Gi"),
		AccessModes: c.Spec.AccessModes, CurrentVolumeAttributesClassName: new("gold")}
	c.Spec.VolumeAttributesClassName = new("gold")
}

func ofSize(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

func TestClaimUpdate(t *testing.T) {
	const forbidden = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"
	pending := func(*corev1.PersistentVolumeClaim) {}
	class := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	annotated := func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "old"}
	}
	for name, test := range map[string]struct {
		was, change func(*corev1.PersistentVolumeClaim)
		want        []string
	}{
		"nothing":                              {pending, pending, nil},
		"labels":                               {pending, func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }, nil},
		"set volume":                           {pending, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "disk" }, nil},
		"another volume":                       {bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" }, []string{forbidden}},
		"expansion before it is bound":         {pending, ofSize("20Gi"), []string{forbidden}},
		"grows":                                {bound, ofSize("20Gi"), nil},
		"failed expansion reduced":             {bound, ofSize("6Gi"), nil},
		"shrinks":                              {bound, ofSize("5Gi"), []string{"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"}},
		"another mode":                         {bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, []string{forbidden, "volumeMode: Invalid value: \"Block\": field is immutable"}},
		"set class":                            {pending, class("fast"), nil},
		"set class of a bound claim":           {bound, class("fast"), nil},
		"another class":                        {class("slow"), class("fast"), []string{forbidden}},
		"class moves from the annotation":      {annotated, func(c *corev1.PersistentVolumeClaim) { class("old")(c); c.Annotations = nil }, nil},
		"class copied from the annotation":     {annotated, class("old"), nil},
		"another class than in the annotation": {annotated, class("new"), []string{forbidden}},
		"annotation removed":                   {annotated, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, []string{`metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "": field is immutable`}},
		"other attributes":                     {bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("silver") }, nil},
		"no attributes":                        {bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = nil }, []string{"spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"}},
		"empty attributes":                     {bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("") }, []string{"spec.volumeAttributesClassName: Forbidden: update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"}},
		"another group": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("example.com"), Kind: "K", Name: "n"}
		}, func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource.APIGroup = new("NONE") }, []string{forbidden}},
		"first group": {pending, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("NONE"), Kind: "K", Name: "n"}
		}, []string{forbidden, `spec.dataSource.apiGroup: Invalid value: "NONE"`}},
		"attributes while pending": {pending, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }, []string{forbidden}},
	} {
		old := newClaim(test.was)
		c := old.DeepCopy()
		test.change(c)
		before := c.DeepCopy()
		wantProblems(t, name, checktest.UpdateErrors(t.Context(), PersistentVolumeClaim.ValidateUpdate, c, old), test.want...)
		if diff := cmp.Diff(before, c); diff != "" {
			t.Errorf("%s: changed while it was validated:\n%s", name, diff)
		}
	}
}

func TestClaimStatus(t *testing.T) {
	for name, test := range map[string]struct {
		status corev1.PersistentVolumeClaimStatus
		want   []string
	}{
		"good": {corev1.PersistentVolumeClaimStatus{Capacity: amounts("storage=1Gi"), AllocatedResources: amounts("storage=2Gi example.com/x=1"),
			AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": corev1.PersistentVolumeClaimNodeResizePending}}, nil},
		"negative": {corev1.PersistentVolumeClaimStatus{Capacity: amounts("storage=-1"), AllocatedResources: amounts("storage=-1")},
			[]string{"status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity", "status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"}},
		"other resources": {corev1.PersistentVolumeClaimStatus{AllocatedResources: amounts("cpu=1"), AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{"a b": "NodeResizePending"}},
			[]string{`status.allocatedResourceStatuses: Invalid value: "a b"`, `status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`}},
		"status": {corev1.PersistentVolumeClaimStatus{AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "Done"}},
			[]string{`status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress"`}},
	} {
		c := newClaim(func(c *corev1.PersistentVolumeClaim) { c.Status = test.status })
		wantProblems(t, name, checktest.UpdateErrors(t.Context(), PersistentVolumeClaim.StatusUpdate.Validate, c, c), test.want...)
	}
}

func TestDataSources(t *testing.T) {
	snapshots, elsewhere := "snapshot.storage.k8s.io", "other"
	snapshot := &corev1.TypedLocalObjectReference{APIGroup: &snapshots, Kind: "VolumeSnapshot", Name: "s"}
	snapshotRef := &corev1.TypedObjectReference{APIGroup: &snapshots, Kind: "VolumeSnapshot", Name: "s"}
	unknown := &corev1.TypedLocalObjectReference{APIGroup: &snapshots, Kind: "Populator", Name: "s"}
	unknownRef := &corev1.TypedObjectReference{APIGroup: &snapshots, Kind: "Populator", Name: "s"}
	foreign := &corev1.TypedObjectReference{APIGroup: &snapshots, Kind: "VolumeSnapshot", Name: "s", Namespace: &elsewhere}
	with := func(source *corev1.TypedLocalObjectReference, ref *corev1.TypedObjectReference) *corev1.PersistentVolumeClaim {
		return newClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource, c.Spec.DataSourceRef = source.DeepCopy(), ref.DeepCopy()
		})
	}
	for name, test := range map[string]struct{ given, old, want *corev1.PersistentVolumeClaim }{
		"nothing":                        {with(nil, nil), nil, with(nil, nil)},
		"old field":                      {with(snapshot, nil), nil, with(snapshot, snapshotRef)},
		"new field":                      {with(nil, unknownRef), nil, with(unknown, unknownRef)},
		"unknown":                        {with(unknown, nil), nil, with(nil, nil)},
		"unknown kind, stored before":    {with(unknown, nil), with(unknown, unknownRef), with(unknown, unknownRef)},
		"foreign":                        {with(nil, foreign), nil, with(nil, nil)},
		"other namespace, stored before": {with(nil, foreign), with(nil, foreign), with(nil, foreign)},
	} {
		PersistentVolumeClaim.Prepare(t.Context(), test.given, test.old)
		if diff := cmp.Diff(test.want, test.given); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	stored := with(snapshot, nil)
	PersistentVolumeClaim.Hooks.Decorate(stored)
	if stored.Spec.DataSourceRef == nil {
		t.Error("an old claim is read without the new field")
	}
}

func TestClaimWarnings(t *testing.T) {
	c := newClaim(ofSize("1500m"))
	c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "a"}
	c.Spec.Resources.Limits = amounts("storage=500m")
	want := []string{
		`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
		`spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`,
		`spec.resources.limits[storage]: fractional byte value "500m" is invalid, must be an integer`,
	}
	if diff := cmp.Diff(want, PersistentVolumeClaim.Warnings(t.Context(), c, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestClaimColumns(t *testing.T) {
	c := newClaim(func(*corev1.PersistentVolumeClaim) {})
	if diff := cmp.Diff([]any{"Pending", "", "", "", "", "<unset>", "Filesystem"}, cells(PersistentVolumeClaim, c)); diff != "" {
		t.Error(diff)
	}
	bound(c)
	c.Spec.StorageClassName, c.DeletionTimestamp = new("fast"), &metav1.Time{}
	if diff := cmp.Diff([]any{"Terminating", "disk", "5Gi", "RWO", "fast", "gold", "Filesystem"}, cells(PersistentVolumeClaim, c)); diff != "" {
		t.Error(diff)
	}
}
