// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRecursiveReadOnlyStatus(t *testing.T) {
	for _, test := range []struct {
		name      string
		mount     v1.VolumeMount
		supported bool
		want      *v1.RecursiveReadOnlyMode
	}{
		{"writable", v1.VolumeMount{}, true, nil},
		{"read-only", v1.VolumeMount{ReadOnly: true}, true, new(v1.RecursiveReadOnlyDisabled)},
		{"if possible", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}, true, new(v1.RecursiveReadOnlyEnabled)},
		{"not possible", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}, false, new(v1.RecursiveReadOnlyDisabled)},
		{"enabled", v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyEnabled)}, true, new(v1.RecursiveReadOnlyEnabled)},
	} {
		in := scene(v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{test.mount}}).with(runningRun("c"))
		in.RecursiveReadOnly = test.supported
		out := Decide(in)
		got := out.Status.ContainerStatuses[0].VolumeMounts[0].RecursiveReadOnly
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		// The mount of a run stays as it is, whatever the runtime learns.
		in.Old, in.RecursiveReadOnly = out.Status, !test.supported
		again := Decide(in).Status.ContainerStatuses[0].VolumeMounts[0].RecursiveReadOnly
		if (again == nil) != (got == nil) || got != nil && *again != *got {
			t.Errorf("%s: changed to %v", test.name, again)
		}
	}
}
