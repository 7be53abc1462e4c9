// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func compare(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

var (
	subdomain = validation.IsDNS1123Subdomain("A")[0]
	qualified = validation.IsQualifiedName("a b")[0]
)

// many returns a map with n keys and values of the given size.
func many(n, size int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[strings.Repeat("k", i+1)] = strings.Repeat("v", size)
	}
	return out
}

func class(edit ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Provisioner: "Example.com/disk"}
	SetObjectDefaults_StorageClass(c)
	for _, e := range edit {
		e(c)
	}
	return c
}

func topologies(terms ...[]corev1.TopologySelectorLabelRequirement) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		for _, term := range terms {
			c.AllowedTopologies = append(c.AllowedTopologies, corev1.TopologySelectorTerm{MatchLabelExpressions: term})
		}
	}
}

func in(key string, values ...string) corev1.TopologySelectorLabelRequirement {
	return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
}

func TestStorageClassValidation(t *testing.T) {
	type terms = []corev1.TopologySelectorLabelRequirement
	for name, test := range map[string]struct {
		edit func(*storagev1.StorageClass)
		want []string
	}{
		"valid":           {func(*storagev1.StorageClass) {}, nil},
		"no provisioner":  {func(c *storagev1.StorageClass) { c.Provisioner = "" }, []string{"provisioner: Required value"}},
		"a provisioner":   {func(c *storagev1.StorageClass) { c.Provisioner = "A b" }, []string{`provisioner: Invalid value: "a b": ` + qualified}},
		"parameters":      {func(c *storagev1.StorageClass) { c.Parameters = many(512, 0) }, nil},
		"too many":        {func(c *storagev1.StorageClass) { c.Parameters = many(513, 0) }, []string{"parameters: Too long: may not be more than 512 bytes"}},
		"too long":        {func(c *storagev1.StorageClass) { c.Parameters = many(1, 256*1024) }, []string{"parameters: Too long: may not be more than 262144 bytes"}},
		"an empty key":    {func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"": "a"} }, []string{`parameters: Invalid value: "": field can not be empty.`}},
		"another policy":  {func(c *storagev1.StorageClass) { c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRecycle) }, []string{`reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`}},
		"an empty policy": {func(c *storagev1.StorageClass) { c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimPolicy("")) }, nil},
		"no mode":         {func(c *storagev1.StorageClass) { c.VolumeBindingMode = nil }, []string{"volumeBindingMode: Required value"}},
		"another mode":    {func(c *storagev1.StorageClass) { c.VolumeBindingMode = new(storagev1.VolumeBindingMode("Later")) }, []string{`volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"`}},
		"topologies":      {topologies(terms{in("zone", "a", "b")}, terms{in("zone", "a")}), nil},
		"no labels":       {topologies(nil), []string{`allowedTopologies[0].matchLabelExpressions: Duplicate value: ""`}},
		"duplicate terms": {topologies(terms{in("zone", "a", "b")}, terms{in("zone", "b", "a")}), []string{`allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`}},
		"values": {topologies(terms{in("a b"), in("zone", "a", "a"), in("zone", "b")}), []string{
			"allowedTopologies[0].matchLabelExpressions[0].values: Required value",
			`allowedTopologies[0].matchLabelExpressions[0].key: Invalid value: "a b": ` + qualified,
			`allowedTopologies[0].matchLabelExpressions[1].values[1]: Duplicate value: "a"`,
			`allowedTopologies[0].matchLabelExpressions[2].key: Duplicate value: "zone"`}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, checktest.Errors(t.Context(), StorageClass.Validate, class(test.edit)), test.want...)
		})
	}
}

func TestStorageClassUpdate(t *testing.T) {
	changed := class(topologies([]corev1.TopologySelectorLabelRequirement{in("zone", "a")}), func(c *storagev1.StorageClass) {
		c.AllowVolumeExpansion, c.MountOptions = new(true), []string{"ro"}
	})
	compare(t, checktest.UpdateErrors(t.Context(), StorageClass.ValidateUpdate, changed, class()))
	compare(t, checktest.UpdateErrors(t.Context(), StorageClass.ValidateUpdate, class(func(c *storagev1.StorageClass) {
		c.Parameters, c.Provisioner = map[string]string{"a": "b"}, "b"
		c.ReclaimPolicy, c.VolumeBindingMode = new(corev1.PersistentVolumeReclaimRetain), new(storagev1.VolumeBindingWaitForFirstConsumer)
	}), class()),
		`parameters: Invalid value: {"a":"b"}: field is immutable`,
		`provisioner: Invalid value: "b": field is immutable`,
		`reclaimPolicy: Invalid value: "Retain": field is immutable`,
		`volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable`)
}

func TestStorageClassWarningsAndColumns(t *testing.T) {
	c := class(topologies([]corev1.TopologySelectorLabelRequirement{in("zone", "a"), in("beta.kubernetes.io/os", "linux")}))
	want := []string{`allowedTopologies[0].matchLabelExpressions[1].key: deprecated since v1.14; use "kubernetes.io/os" instead`}
	if diff := cmp.Diff(want, StorageClass.Warnings(t.Context(), c, nil)); diff != "" {
		t.Error(diff)
	}
	var cells []any
	for _, column := range StorageClass.Columns {
		cells = append(cells, column.Cell(c))
	}
	if diff := cmp.Diff([]any{"Example.com/disk", "Delete", "Immediate", false}, cells); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultClass(t *testing.T) {
	at := func(name string, minute int, annotation string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)),
			Annotations: map[string]string{annotation: "true"},
		}}
	}
	for want, classes := range map[int][]storagev1.StorageClass{
		-1: {at("a", 1, "x")},
		0:  {at("a", 2, defaultAnnotation), at("b", 1, defaultAnnotation)},
		1:  {at("b", 2, defaultAnnotation), at("a", 2, olderDefaultAnnotation), at("c", 3, "x")},
		2:  {at("a", 1, defaultAnnotation), at("b", 1, defaultAnnotation), at("c", 3, defaultAnnotation)},
	} {
		if got := defaultClass(classes); got != want {
			t.Errorf("class %d, want %d", got, want)
		}
	}
}

func TestVolumeAttributesClass(t *testing.T) {
	with := func(driver string, parameters map[string]string) *storagev1.VolumeAttributesClass {
		return &storagev1.VolumeAttributesClass{DriverName: driver, Parameters: parameters}
	}
	fast := map[string]string{"iops": "100"}
	compare(t, checktest.Errors(t.Context(), VolumeAttributesClass.Validate, with("example.com", fast)))
	compare(t, checktest.Errors(t.Context(), VolumeAttributesClass.Validate, with("", nil)),
		"driverName: Required value", "parameters: Required value: must contain at least one key/value pair")
	compare(t, checktest.UpdateErrors(t.Context(), VolumeAttributesClass.ValidateUpdate, with("example.com", fast), with("example.com", fast)))
	compare(t, checktest.UpdateErrors(t.Context(), VolumeAttributesClass.ValidateUpdate, with("example.org", map[string]string{"iops": "200"}), with("example.com", fast)),
		"driverName: Forbidden: updates to driverName are forbidden.",
		"parameters: Forbidden: updates to parameters are forbidden.")
}

func TestCSIStorageCapacity(t *testing.T) {
	with := func(class, size string, topology *metav1.LabelSelector) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{StorageClassName: class, Capacity: new(resource.MustParse(size)), NodeTopology: topology}
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"b c"}}}}
	badValue := validation.IsValidLabelValue("b c")[0]
	compare(t, checktest.Errors(t.Context(), CSIStorageCapacity.Validate, with("fast", "1Gi", nil)))
	compare(t, checktest.Errors(t.Context(), CSIStorageCapacity.Validate, with("A", "-1Gi", bad)),
		`nodeTopology.matchExpressions[0].values[0]: Invalid value: "b c": `+badValue,
		`storageClassName: Invalid value: "A": `+subdomain,
		`capacity: Invalid value: "-1Gi": must be greater than or equal to 0`)
	compare(t, checktest.UpdateErrors(t.Context(), CSIStorageCapacity.ValidateUpdate, with("fast", "2Gi", bad), with("fast", "1Gi", bad)))
	compare(t, checktest.UpdateErrors(t.Context(), CSIStorageCapacity.ValidateUpdate, with("slow", "1Gi", nil), with("fast", "1Gi", &metav1.LabelSelector{})),
		"nodeTopology: Invalid value: null: field is immutable",
		`storageClassName: Invalid value: "slow": field is immutable`)

	old := &metav1.LabelSelector{MatchLabels: map[string]string{"beta.kubernetes.io/arch": "arm64", "a": "b"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "beta.kubernetes.io/os", Operator: metav1.LabelSelectorOpExists}}}
	want := []string{
		`nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`,
		`nodeTopology.matchLabels.beta.kubernetes.io/arch: deprecated since v1.14; use "kubernetes.io/arch" instead`,
	}
	if diff := cmp.Diff(want, CSIStorageCapacity.Warnings(t.Context(), with("fast", "1Gi", old), nil)); diff != "" {
		t.Error(diff)
	}
}
