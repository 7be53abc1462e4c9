// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volumespec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestClaimSpec(t *testing.T) {
	errs := check.Run(func(c *check.Checker) {
		ValidatePersistentVolumeClaimSpec(c, &v1.PersistentVolumeClaimSpec{
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, v1.ReadWriteMany, "Mine"},
			Selector:         &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}},
			Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{"storage": resource.MustParse("0")}},
			StorageClassName: new("Fast"),
			VolumeMode:       new(v1.PersistentVolumeMode("Tape")),
			DataSource:       &v1.TypedLocalObjectReference{Kind: "Snapshot", Name: "s"},
			DataSourceRef:    &v1.TypedObjectReference{Kind: "Snapshot", Name: "s", APIGroup: new("snapshot.example.com")},
		}, field.NewPath("spec"))
	})
	checktest.Diff(t, []string{
		`spec.accessModes: Unsupported value: "Mine": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
		`spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes`,
		`spec.selector.matchLabels: Invalid value: "b c": ` + checktest.NotLabelValue,
		`spec.resources[storage]: Invalid value: "0": must be greater than zero`,
		`spec.storageClassName: Invalid value: "Fast": ` + checktest.NotDNSSubdomain,
		`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
		`spec.dataSource: Invalid value: "Snapshot": must be 'PersistentVolumeClaim' when referencing the default apiGroup`,
		`spec: Invalid value: {}: must match dataSourceRef`,
	}, errs)
}
