// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kindred-project/kindred/internal/mounts"
)

func TestMounts(t *testing.T) {
	f := newFixture(t)
	pod := podWith(
		configMapVolume("config", "c"),
		volumeOf("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}),
		volumeOf("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volumeOf("oci", v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "model:v1"}}),
	)
	mounts := pod.Spec.Containers[0].VolumeMounts
	mounts[3].SubPath = "weights"
	mounts[1].MountPropagation = new(v1.MountPropagationBidirectional)
	mounts[2].MountPath, mounts[2].ReadOnly = "relative", true
	f.prepared(t, pod)
	got, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range got {
		line := strings.TrimPrefix(m.HostPath, f.options.Layout.VolumesDir(pod.UID)) + " at " + m.ContainerPath + " " + m.Propagation.String()
		if m.Readonly {
			line += " ro"
		}
		if m.Image != nil {
			line += " " + m.Image.UserSpecifiedImage + "//" + m.ImageSubPath
		}
		lines = append(lines, line)
	}
	want := []string{
		"/kubernetes.io~configmap/config at /config PROPAGATION_PRIVATE ro",
		"/srv at /host PROPAGATION_BIDIRECTIONAL",
		"/kubernetes.io~empty-dir/scratch at /relative PROPAGATION_PRIVATE ro",
		" at /oci PROPAGATION_PRIVATE ro model:v1//weights",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestMountErrors(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		name   string
		change func(m *v1.VolumeMount)
		want   string
	}{
		{"no such volume", func(m *v1.VolumeMount) { m.Name = "x" }, `cannot find volume "x" to mount into container "c"`},
		{"absolute subPath", func(m *v1.VolumeMount) { m.SubPath = "/x" }, "error SubPath `/x` must not be an absolute path"},
		{"subPath with ..", func(m *v1.VolumeMount) { m.SubPath = "a/../../x" }, "unable to provision SubPath `a/../../x`: must not contain '..'"},
		{"variables without value", func(m *v1.VolumeMount) { m.SubPathExpr = "$(B)/$(A)/$(E)/$(SET)" }, "missing value for A, B, E"},
		{"subPathExpr with ..", func(m *v1.VolumeMount) { m.SubPathExpr = "$(UP)" }, "unable to provision SubPath `../x`: must not contain '..'"},
		{"recursive but writable", func(m *v1.VolumeMount) { m.RecursiveReadOnly = new(v1.RecursiveReadOnlyEnabled) },
			`failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not read-only`},
		{"recursive but not supported", func(m *v1.VolumeMount) {
			m.RecursiveReadOnly, m.ReadOnly = new(v1.RecursiveReadOnlyEnabled), true
		}, `failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not supported by the runtime`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podWith(volumeOf("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
			f.prepared(t, pod)
			tc.change(&pod.Spec.Containers[0].VolumeMounts[0])
			env := []*runtimeapi.KeyValue{{Key: "SET", Value: []byte("1")}, {Key: "E"}, {Key: "UP", Value: []byte("../x")}}
			_, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], env)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestRecursiveReadOnly(t *testing.T) {
	mount := &v1.VolumeMount{Name: "v", ReadOnly: true}
	for mode, want := range map[v1.RecursiveReadOnlyMode][2]bool{
		v1.RecursiveReadOnlyDisabled: {false, false}, v1.RecursiveReadOnlyIfPossible: {false, true}, v1.RecursiveReadOnlyEnabled: {false, true},
	} {
		mount.RecursiveReadOnly = &mode
		without, _ := recursiveReadOnly(mount, func() bool { return false })
		with, err := recursiveReadOnly(mount, func() bool { return true })
		if without != want[0] || with != want[1] || err != nil {
			t.Errorf("%s: %v, %v, %v", mode, without, with, err)
		}
	}
}

// subPathMount prepares a pod with one emptyDir volume, and returns the mount of the subPath.
func subPathMount(t *testing.T, f *fixture, subPath string, fill func(dir string)) (string, error) {
	t.Helper()
	pod := podWith(volumeOf("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = subPath
	f.prepared(t, pod)
	if fill != nil {
		fill(f.at(t, pod, "v"))
	}
	mounts, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], nil)
	if err != nil {
		return "", err
	}
	return mounts[0].HostPath, nil
}

func TestSubPath(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	at, err := subPathMount(t, f, "a/b", func(dir string) {
		mkdir(t, filepath.Join(dir, "a", "b"))
		if err := os.WriteFile(filepath.Join(dir, "a", "b", "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(at, "f")); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	// The next start of the container reuses the mount.
	again, err := subPathMount(t, f, "a/b", nil)
	if err != nil || again != at {
		t.Errorf("%s, %v", again, err)
	}
	if points, err := mounts.At(at); err != nil || len(points) != 1 {
		t.Errorf("mounted %d times, %v", len(points), err)
	}
	// A new file with the same name is mounted instead.
	file, err := subPathMount(t, f, "a/b/f", nil)
	if err != nil || file != at {
		t.Fatalf("%s, %v", file, err)
	}
	if data, err := os.ReadFile(at); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestMissingSubPathHasTheVolumesMode(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	at, err := subPathMount(t, f, "new/deep", func(dir string) {
		if err := os.Chmod(dir, 0o770|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 0, 77); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(t, at); got != "0:77 dgrwxrwx---" {
		t.Error(got)
	}
}

func TestSubPathCannotLeaveTheVolume(t *testing.T) {
	asRoot(t)
	outside := t.TempDir()
	for name, link := range map[string]string{
		"absolute": outside, "up": "../../../../..", "of a process": "/proc/self/root", "dangling up": "../none", "dangling absolute": "/none",
	} {
		for _, subPath := range []string{"link", "link/x"} {
			t.Run(name+" "+subPath, func(t *testing.T) {
				f := newFixture(t)
				at, err := subPathMount(t, f, subPath, func(dir string) {
					if err := os.Symlink(link, filepath.Join(dir, "link")); err != nil {
						t.Fatal(err)
					}
				})
				want := `failed to prepare subPath for volumeMount "v" of container "c"`
				if err == nil || err.Error() != want {
					t.Errorf("got %s, %v", at, err)
				}
			})
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("created outside of the volume: %v, %v", entries, err)
	}
}

func TestSubPathFollowsLinksInside(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	pod := podWith(configMapVolume("v", "c"))
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "one"
	f.prepared(t, pod)
	read := func() string {
		mounts, err := f.Mounts(context.Background(), pod, &pod.Spec.Containers[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(mounts[0].HostPath)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := read(); got != "1" {
		t.Errorf("got %q", got)
	}
	// A subPath is resolved at each start of the container.
	f.api.set("c", map[string]string{"one": "new"})
	f.prepared(t, pod)
	if got := read(); got != "new" {
		t.Errorf("after a restart: got %q", got)
	}
}

func TestNestedMountPoints(t *testing.T) {
	pod := podWith(volumeOf("v", v1.VolumeSource{}))
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "v", MountPath: "/dir"}, {Name: "a", MountPath: "/dir/nested"}, {Name: "b", MountPath: "/dir/nested/double"},
		{Name: "c", MountPath: "/dir/nested-vol/x"}, {Name: "d", MountPath: "/dir/nested.vol/"}, {Name: "e", MountPath: "/dir2"}, {Name: "f", MountPath: "/other"},
	}
	got := nestedMountPoints(pod, "v")
	slices.Sort(got)
	if diff := cmp.Diff([]string{"nested-vol/x/", "nested.vol/", "nested/"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "file"), filepath.Join(dir, "socket")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		kind v1.HostPathType
		want string
	}{
		{filepath.Join(dir, "none"), v1.HostPathUnset, ""},
		{dir, v1.HostPathDirectory, ""},
		{file, v1.HostPathFile, ""},
		{socket, v1.HostPathSocket, ""},
		{"/dev/null", v1.HostPathCharDev, ""},
		{filepath.Join(dir, "new", "dir"), v1.HostPathDirectoryOrCreate, ""},
		{filepath.Join(dir, "new", "file"), v1.HostPathFileOrCreate, ""},
		{dir, v1.HostPathDirectoryOrCreate, ""},
		{file, v1.HostPathDirectoryOrCreate, "hostPath type check failed: " + file + " is not a directory, it's a File"},
		{dir, v1.HostPathFileOrCreate, "hostPath type check failed: " + dir + " is not a file, it's a Directory"},
		{file, v1.HostPathSocket, "hostPath type check failed: " + file + " is not a socket file, it's a File"},
		{"/dev/null", v1.HostPathBlockDev, "hostPath type check failed: /dev/null is not a block device, it's a CharDevice"},
		{"/none", v1.HostPathCharDev, "hostPath type check failed, /none is not a character device, unable to determine its type: stat /none: no such file or directory"},
		{file, "Odd", "Odd is an invalid volume type"},
		{"/a/../b", v1.HostPathUnset, "invalid HostPath `/a/../b`: must not contain '..'"},
	} {
		v := &hostPath{source: &v1.HostPathVolumeSource{Path: tc.path, Type: &tc.kind}}
		_, err := v.prepare(context.Background())
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != tc.want {
			t.Errorf("%s as %q: got %q, want %q", tc.path, tc.kind, message, tc.want)
		}
	}
}

// TestModeOfSubPath: what is made for a subPath has all bits of its volume's mode.
func TestModeOfSubPath(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	for sub, mode := range map[string]os.FileMode{
		"plain": 0o755, "sticky": 0o777 | os.ModeSticky, "group": 0o770 | os.ModeSetgid, "both/below": 0o777 | os.ModeSticky | os.ModeSetgid,
	} {
		at, err := subPathMount(t, f, sub, func(dir string) {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ os.ModeDir; got != mode {
			t.Errorf("%s: mode %v, want %v", sub, got, mode)
		}
	}
}
