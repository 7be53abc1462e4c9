// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// requestingPages returns a pod whose containers request pages of these sizes.
func requestingPages(sizes ...string) *v1.Pod {
	p := &v1.Pod{}
	for _, size := range sizes {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceName(v1.ResourceHugePagesPrefix + size): resource.MustParse("1Gi")},
		}})
	}
	return p
}

func TestPageSize(t *testing.T) {
	ofPod := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}}}}
	for _, test := range []struct {
		pod    *v1.Pod
		medium v1.StorageMedium
		want   string
		err    string
	}{
		{requestingPages("2Mi"), "HugePages", "2Mi", ""},
		{ofPod, "HugePages", "2Mi", ""},
		{requestingPages("2Mi", "1Gi"), "HugePages-1Gi", "1Gi", ""},
		{requestingPages("2Mi", "1Gi"), "HugePages", "", "medium: HugePages can't be used if container requests multiple huge page sizes"},
		{requestingPages("2Mi"), "HugePages-1Gi", "", "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"},
		{requestingPages(), "HugePages", "", "medium HugePages: hugePages storage requested, but there is no resource request for huge pages"},
	} {
		got, err := pageSize(test.pod, test.medium)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != test.err || err == nil && got.String() != test.want {
			t.Errorf("%s: %s, %q, want %s, %q", test.medium, got.String(), text, test.want, test.err)
		}
	}
}

func TestMountHugePages(t *testing.T) {
	dir := t.TempDir()
	if unix.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for range 2 { // it is idempotent
		if err := mountHugePages(dir, resource.MustParse("2Mi")); err != nil {
			t.Skipf("this machine has no huge pages of 2 MiB: %v", err)
		}
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.HUGETLBFS_MAGIC || fs.Bsize != 2<<20 {
		t.Errorf("type %x, pages of %d: %v", fs.Type, fs.Bsize, err)
	}
}
