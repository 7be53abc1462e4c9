// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"testing"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
)

func TestMustRelabel(t *testing.T) {
	f := newFixture(t)
	readOnly := claimVolume("read-only", true)
	pod := podWith(
		configMapVolume("config", "c"),
		volumeOf("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}),
		volumeOf("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		claimVolume("local", false), readOnly,
	)
	f.claimed(t, v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}})
	f.prepared(t, pod)
	t.Cleanup(func() { f.tornDown(t, pod.UID) })
	mounts, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"/config": true, "/host": false, "/scratch": true, "/local": true, "/read-only": false}
	for _, m := range mounts {
		if relabel, ok := want[m.ContainerPath]; !ok || m.SelinuxRelabel != relabel {
			t.Errorf("%s: relabel %t", m.ContainerPath, m.SelinuxRelabel)
		}
	}
}

func TestStoresLabels(t *testing.T) {
	for _, c := range []struct {
		info mountinfo.Info
		want bool
	}{
		{mountinfo.Info{Options: "rw,relatime", VFSOptions: "rw"}, false},
		{mountinfo.Info{Options: "rw,seclabel", VFSOptions: "rw"}, true},
		{mountinfo.Info{Options: "rw", VFSOptions: "rw,seclabel,attr2"}, true},
		{mountinfo.Info{Options: "rw", VFSOptions: "rw,context=system_u:object_r:x:s0:c1,c2"}, false},
	} {
		if got := storesLabels(&c.info); got != c.want {
			t.Errorf("%q %q: %t", c.info.Options, c.info.VFSOptions, got)
		}
	}
}
