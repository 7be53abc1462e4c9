// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func driver(edit ...func(*storagev1.CSIDriverSpec)) *storagev1.CSIDriver {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}
	SetObjectDefaults_CSIDriver(d)
	for _, e := range edit {
		e(&d.Spec)
	}
	return d
}

func TestCSIDriverDefaults(t *testing.T) {
	want := storagev1.CSIDriverSpec{
		AttachRequired: new(true), PodInfoOnMount: new(false), StorageCapacity: new(false),
		FSGroupPolicy:        new(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		RequiresRepublish:    new(false), SELinuxMount: new(false), PreventPodSchedulingIfMissing: new(false),
	}
	if diff := cmp.Diff(want, driver().Spec); diff != "" {
		t.Error(diff)
	}
}

func TestCSIDriverValidation(t *testing.T) {
	type spec = storagev1.CSIDriverSpec
	for name, test := range map[string]struct {
		edit func(*spec)
		want []string
	}{
		"valid": {func(*spec) {}, nil},
		"nothing": {func(s *spec) { *s = spec{} }, []string{
			"spec.attachedRequired: Required value", "spec.podInfoOnMount: Required value", "spec.storageCapacity: Required value",
			"spec.seLinuxMount: Required value", "spec.preventPodSchedulingIfMissing: Required value"}},
		"a policy": {func(s *spec) { s.FSGroupPolicy = new(storagev1.FSGroupPolicy("All")) }, []string{`spec.fsGroupPolicy: Unsupported value: "All": supported values: "File", "None", "ReadWriteOnceWithFSType"`}},
		"a mode": {func(s *spec) { s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{"Ephemeral", "Eternal"} },
			[]string{`spec.volumeLifecycleModes: Unsupported value: "Eternal": supported values: "Persistent", "Ephemeral"`}},
		"a period": {func(s *spec) { s.NodeAllocatableUpdatePeriodSeconds = new(int64(9)) }, []string{"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"}},
		"tokens": {func(s *spec) {
			s.TokenRequests = []storagev1.TokenRequest{{}, {Audience: "a", ExpirationSeconds: new(int64(600))}, {Audience: "b", ExpirationSeconds: new(int64(1 << 32))}}
			s.ServiceAccountTokenInSecrets = new(false)
		}, nil},
		"bad tokens": {func(s *spec) {
			s.TokenRequests = []storagev1.TokenRequest{{Audience: "a", ExpirationSeconds: new(int64(599))}, {Audience: "b", ExpirationSeconds: new(int64(1<<32 + 1))}, {Audience: "a", ExpirationSeconds: new(int64(1))}}
		}, []string{
			"spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
			"spec.tokenRequests[1].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
			`spec.tokenRequests[2].audience: Duplicate value: "a"`}},
		"no tokens": {func(s *spec) { s.ServiceAccountTokenInSecrets = new(true) }, []string{"spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), CSIDriver.Validate, driver(test.edit)), test.want...)
		})
	}
}

func TestCSIDriverUpdate(t *testing.T) {
	other := driver(func(s *storagev1.CSIDriverSpec) { s.PodInfoOnMount = new(true) })
	compare(t, checktest.UpdateErrors(t.Context(), CSIDriver.ValidateUpdate, other, driver()))
	CSIDriver.Prepare(t.Context(), other, nil)
	if other.Generation != 0 {
		t.Errorf("a new driver has generation %d", other.Generation)
	}
	CSIDriver.Prepare(t.Context(), other, driver())
	if other.Generation != 1 {
		t.Errorf("a changed driver has generation %d", other.Generation)
	}
	compare(t, checktest.UpdateErrors(t.Context(), CSIDriver.ValidateUpdate, driver(func(s *storagev1.CSIDriverSpec) {
		s.AttachRequired, s.VolumeLifecycleModes = new(false), []storagev1.VolumeLifecycleMode{"Ephemeral"}
	}), driver()),
		"spec.attachedRequired: Invalid value: false: field is immutable",
		`spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable`)
}

func TestCSIDriverWarnings(t *testing.T) {
	tokens := driver(func(s *storagev1.CSIDriverSpec) { s.TokenRequests = []storagev1.TokenRequest{{Audience: "a"}} })
	want := []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
	for name, test := range map[string]struct {
		d, old *storagev1.CSIDriver
		want   []string
	}{
		"new":       {tokens, nil, want},
		"added":     {tokens, driver(), want},
		"unchanged": {tokens, tokens, nil},
		"none":      {driver(), nil, nil},
	} {
		if diff := cmp.Diff(test.want, CSIDriver.Warnings(t.Context(), test.d, test.old)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	var cells []any
	for _, column := range CSIDriver.Columns {
		cells = append(cells, column.Cell(tokens), column.Cell(&storagev1.CSIDriver{}))
	}
	if diff := cmp.Diff([]any{true, true, false, false, false, false, "a", "<unset>", false, false, "Persistent", "<none>"}, cells); diff != "" {
		t.Error(diff)
	}
}

func onNode(drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: drivers}}
}

func TestCSINode(t *testing.T) {
	good := storagev1.CSINodeDriver{Name: "Disk.example.com", NodeID: "n1", TopologyKeys: []string{"zone"}}
	compare(t, checktest.Errors(t.Context(), CSINode.Validate, onNode(good)))
	compare(t, checktest.Errors(t.Context(), CSINode.Validate, onNode(good, good)), `spec.drivers[1].name: Duplicate value: "Disk.example.com"`)
	compare(t, checktest.Errors(t.Context(), CSINode.Validate, onNode(storagev1.CSINodeDriver{
		Name: strings.Repeat("a", 64), TopologyKeys: []string{"a", "a", "a b"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(-1))},
	})),
		"spec.drivers[0].name: Too long: may not be more than 63 bytes",
		"spec.drivers[0].nodeID: Required value",
		"spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
		`spec.drivers[0]: Duplicate value: "a"`,
		`spec.drivers[0]: Invalid value: "a b": `+qualified)
	long := good
	long.NodeID = strings.Repeat("a", 257)
	compare(t, checktest.Errors(t.Context(), CSINode.Validate, onNode(long)), `spec.drivers[0].nodeID: Invalid value: "`+long.NodeID+`": must be 256 characters or less`)

	more := good
	more.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(5))}
	compare(t, checktest.UpdateErrors(t.Context(), CSINode.ValidateUpdate, onNode(more), onNode(good)))
	compare(t, checktest.UpdateErrors(t.Context(), CSINode.ValidateUpdate, onNode(), onNode(good)))
	moved := good
	moved.NodeID = "n2"
	errs := checktest.UpdateErrors(t.Context(), CSINode.ValidateUpdate, onNode(moved), onNode(good))
	if len(errs) != 1 || errs[0].Field != "spec.drivers" || errs[0].Detail != "field is immutable" {
		t.Errorf("%v", errs)
	}

	healthy := onNode(good)
	healthy.Status.StorageHealth = []storagev1.StorageHealth{{Name: "disk.example.com"}}
	CSINode.StatusUpdate.Prepare(t.Context(), healthy, onNode(good))
	if healthy.Status.StorageHealth != nil {
		t.Error("an alpha field was kept")
	}
}

func attachment(edit ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disk.example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}}
	for _, e := range edit {
		e(a)
	}
	return a
}

func TestVolumeAttachment(t *testing.T) {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	inline := &corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "v1"}}}
	source := func(s storagev1.VolumeAttachmentSource) func(*storagev1.VolumeAttachment) {
		return func(a *storagev1.VolumeAttachment) { a.Spec.Source = s }
	}
	failed := func(e storagev1.VolumeError) func(*storagev1.VolumeAttachment) {
		return func(a *storagev1.VolumeAttachment) { a.Status.AttachError, a.Status.DetachError = &e, &e }
	}
	for name, test := range map[string]struct {
		edit func(*storagev1.VolumeAttachment)
		want []string
	}{
		"valid":       {func(*storagev1.VolumeAttachment) {}, nil},
		"no attacher": {func(a *storagev1.VolumeAttachment) { a.Spec.Attacher = "" }, []string{"spec.attacher: Required value"}},
		"an attacher": {func(a *storagev1.VolumeAttachment) { a.Spec.Attacher = "a b" }, []string{`spec.attacher: Invalid value: "a b": ` + subdomain}},
		"a node":      {func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "A" }, []string{`spec.nodeName: Invalid value: "A": ` + subdomain}},
		"no source":   {source(storagev1.VolumeAttachmentSource{}), []string{"spec.source: Required value: " + exactlyOne}},
		"two sources": {source(storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv"), InlineVolumeSpec: inline}), []string{"spec.source: Forbidden: " + exactlyOne}},
		"inline":      {source(storagev1.VolumeAttachmentSource{InlineVolumeSpec: inline}), nil},
		"empty inline": {source(storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{AccessModes: inline.AccessModes}}), []string{
			"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
			"spec.source.inlineVolumeSpec: Required value: must specify a volume type"}},
		"a name":       {source(storagev1.VolumeAttachmentSource{PersistentVolumeName: new("A")}), []string{`spec.source.persistentVolumeName: Invalid value: "A": ` + subdomain}},
		"long errors":  {failed(storagev1.VolumeError{Message: strings.Repeat("a", 1025)}), []string{"status.attachError.message: Too long: may not be more than 1024 bytes", "status.detachError.message: Too long: may not be more than 1024 bytes"}},
		"error codes":  {failed(storagev1.VolumeError{ErrorCode: new(int32(-1))}), []string{"status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive", "status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
		"big metadata": {func(a *storagev1.VolumeAttachment) { a.Status.AttachmentMetadata = many(1, 256*1024) }, []string{"status.attachmentMetadata: Too long: may not be more than 262144 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), VolumeAttachment.Validate, attachment(test.edit)), test.want...)
		})
	}
	moved := attachment(func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "n2" })
	errs := checktest.UpdateErrors(t.Context(), VolumeAttachment.ValidateUpdate, moved, attachment())
	if len(errs) != 1 || errs[0].Field != "spec" || errs[0].Detail != "field is immutable" {
		t.Errorf("%v", errs)
	}
	compare(t, checktest.UpdateErrors(t.Context(), VolumeAttachment.StatusUpdate.Validate, attachment(failed(storagev1.VolumeError{Message: "no"})), attachment()))
	odd := attachment(func(a *storagev1.VolumeAttachment) { a.GenerateName = "A" })
	if errs := checktest.UpdateErrors(t.Context(), VolumeAttachment.StatusUpdate.Validate, odd, attachment()); len(errs) != 1 || errs[0].Field != "metadata.generateName" {
		t.Errorf("%v", errs)
	}
}

// TestDeclaredValidations checks that the generated validations are registered with the scheme.
func TestDeclaredValidations(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := Group().Register(scheme); err != nil {
		t.Fatal(err)
	}
	errs := scheme.Validate(t.Context(), nil, &storagev1.StorageClass{}, "")
	want := field.Required(field.NewPath("provisioner"), "").Error()
	if len(errs) == 0 || errs[0].Error() != want {
		t.Errorf("%v, want %s", errs, want)
	}
}
