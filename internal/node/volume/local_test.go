// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/mounts"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func expectFile(t *testing.T, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%s has %q, %v, want %q", path, data, err, want)
	}
}

func (f *fixture) tornDown(t *testing.T, uid types.UID) {
	t.Helper()
	if err := f.Teardown(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if points, err := mounts.At(f.options.Layout.PodDir(uid)); err != nil || len(points) > 0 {
		t.Errorf("still mounted: %v, %v", points, err)
	}
	for _, dir := range []string{f.options.Layout.VolumesDir(uid), f.options.Layout.VolumeDevicesDir(uid), f.options.Layout.SubpathsDir(uid)} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s still exists", dir)
		}
	}
}

func TestLocalDirectory(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	data := t.TempDir()
	f.claimed(t, localSource(data))
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	f.prepared(t, pod)
	inPod := f.at(t, pod, "v")
	if want := filepath.Join(f.options.Layout.VolumesDir(pod.UID), localDir, "pv"); inPod != want {
		t.Errorf("at %s, want %s", inPod, want)
	}
	writeFile(t, filepath.Join(inPod, "f"), "kept")
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "sub/path"
	if _, err := f.Mounts(t.Context(), pod, &pod.Spec.Containers[0], nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(f.subpathTarget(pod.UID, "v", "c", 0), "g"), "kept too")

	f.tornDown(t, pod.UID)
	f.tornDown(t, pod.UID)
	expectFile(t, filepath.Join(data, "f"), "kept")
	expectFile(t, filepath.Join(data, "sub/path/g"), "kept too")
}

// TestBusyDataVolumeStays: a volume in use is neither unmounted nor removed, and the next attempt succeeds.
func TestBusyDataVolumeStays(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	data := t.TempDir()
	f.claimed(t, localSource(data))
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	file, err := os.Create(filepath.Join(f.at(t, pod, "v"), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Teardown(t.Context(), pod.UID); err == nil || !strings.Contains(err.Error(), `UnmountVolume.TearDown failed for volume "pv"`) {
		t.Errorf("teardown of a busy volume: %v", err)
	}
	if _, err := file.WriteString("kept"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	f.tornDown(t, pod.UID)
	expectFile(t, filepath.Join(data, "f"), "kept")
}

// TestFilesBelowAMissingMountStay: what a container wrote after somebody had unmounted its volume is not deleted.
func TestFilesBelowAMissingMountStay(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	f.claimed(t, localSource(t.TempDir()))
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	dir := f.at(t, pod, "v")
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "f"), "kept")
	if err := f.Teardown(t.Context(), pod.UID); err == nil {
		t.Error("a directory with files was removed")
	}
	expectFile(t, filepath.Join(dir, "f"), "kept")
}

func TestLocalReadOnly(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	f.claimed(t, localSource(t.TempDir()))
	pod := podWith(claimVolume("v", true))
	f.prepared(t, pod)
	if err := os.WriteFile(filepath.Join(f.at(t, pod, "v"), "f"), nil, 0o600); err == nil {
		t.Error("a read-only volume was written")
	}
	f.tornDown(t, pod.UID)
}

func TestLocalMountOptions(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	claim, pv := f.bindings(localSource(t.TempDir()))
	pv.Spec.MountOptions = []string{"noexec"}
	f.put(t, claim, pv)
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	var stat unix.Statfs_t
	if err := unix.Statfs(f.at(t, pod, "v"), &stat); err != nil || stat.Flags&unix.ST_NOEXEC == 0 {
		t.Errorf("flags %x, %v", stat.Flags, err)
	}
	f.tornDown(t, pod.UID)
}

func TestFSGroupOfLocalVolume(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	data := t.TempDir()
	writeFile(t, filepath.Join(data, "f"), "")
	f.claimed(t, localSource(data))
	pod := podWith(claimVolume("v", false))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(1234))}
	f.prepared(t, pod)
	if got := groupOf(t, filepath.Join(data, "f")); got != 1234 {
		t.Errorf("group %d", got)
	}

	// Another pod with another group does not take the volume away, and is told so.
	second := podWith(claimVolume("v", false))
	second.UID, second.Spec.SecurityContext = "second", &v1.PodSecurityContext{FSGroup: ptr.To(int64(99))}
	f.prepared(t, second)
	if got := groupOf(t, filepath.Join(data, "f")); got != 1234 {
		t.Errorf("group %d after the second pod", got)
	}
	want := []string{"Warning AlreadyMountedVolume The requested fsGroup is 99, but the volume pv has GID 1234. The volume may not be shareable."}
	if diff := cmp.Diff(want, f.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.tornDown(t, pod.UID)
	f.tornDown(t, second.UID)

	// OnRootMismatch leaves the files alone if the root has the group.
	if err := os.Chown(filepath.Join(data, "f"), -1, 7); err != nil {
		t.Fatal(err)
	}
	pod.Spec.SecurityContext.FSGroupChangePolicy = ptr.To(v1.FSGroupChangeOnRootMismatch)
	f.prepared(t, pod)
	if got := groupOf(t, filepath.Join(data, "f")); got != 7 {
		t.Errorf("OnRootMismatch: group %d", got)
	}
	f.tornDown(t, pod.UID)
}

func groupOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Gid
}

// disk returns a file below LoopFiles.
func (f *fixture) disk(t *testing.T) string {
	t.Helper()
	asRoot(t)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("the machine has no loop devices")
	}
	f.options.LoopFiles = t.TempDir()
	file := filepath.Join(f.options.LoopFiles, "disk")
	writeFile(t, file, "")
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = detachLoop(file) })
	return file
}

// TestLocalDevice: a device is formatted once, mounted once for two pods, and keeps its data.
func TestLocalDevice(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	f := newFixture(t)
	device, err := loop.Attach(f.disk(t))
	if err != nil {
		t.Fatal(err)
	}
	f.claimed(t, localSource(device))
	first, second := podWith(claimVolume("v", false)), podWith(claimVolume("v", false))
	second.UID = "second"
	f.prepared(t, first)
	f.prepared(t, second)
	writeFile(t, filepath.Join(f.at(t, first, "v"), "f"), "kept")
	expectFile(t, filepath.Join(f.at(t, second, "v"), "f"), "kept")
	f.tornDown(t, first.UID)
	expectFile(t, filepath.Join(f.at(t, second, "v"), "f"), "kept")
	f.tornDown(t, second.UID)
	if _, err := os.Stat(f.deviceMount("pv")); !os.IsNotExist(err) {
		t.Errorf("the device's mount point still exists: %v", err)
	}
	f.prepared(t, first)
	expectFile(t, filepath.Join(f.at(t, first, "v"), "f"), "kept")
	f.tornDown(t, first.UID)
}

// TestLocalBlock: a file of the provisioner is a loop device as long as a pod uses it.
func TestLocalBlock(t *testing.T) {
	f := newFixture(t)
	file := f.disk(t)
	claim, pv := f.bindings(localSource(file))
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	f.put(t, claim, pv)
	first, second := asBlock(podWith(claimVolume("v", false))), asBlock(podWith(claimVolume("v", true)))
	second.UID = "second"
	f.prepared(t, first)
	f.prepared(t, first)
	f.prepared(t, second)
	var paths []string
	for _, pod := range []*v1.Pod{first, second} {
		devices, err := f.Devices(pod, &pod.Spec.Containers[0])
		if err != nil || len(devices) != 1 {
			t.Fatalf("devices %v, %v", devices, err)
		}
		paths = append(paths, devices[0].HostPath, devices[0].ContainerPath, devices[0].Permissions)
	}
	device, err := loop.Find(file)
	if err != nil || device == "" {
		t.Fatalf("loop device %q, %v", device, err)
	}
	if diff := cmp.Diff([]string{device, "/dev/v", "mrw", device, "/dev/v", "r"}, paths); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	f.tornDown(t, first.UID)
	if again, err := loop.Find(file); again != device {
		t.Errorf("the device of the second pod is %q, %v", again, err)
	}
	f.tornDown(t, second.UID)
	if again, err := loop.Find(file); again != "" || err != nil {
		t.Errorf("still attached to %q, %v", again, err)
	}
	want := []string{
		`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "` + filepath.Join(f.options.Layout.VolumeDevicesDir("uid"), localDir) + `"`,
		`Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "` + filepath.Join(f.options.Layout.VolumeDevicesDir("second"), localDir) + `"`,
	}
	if diff := cmp.Diff(want, f.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLocalBlockOfDeletedFile: the device is detached even if the file is gone.
func TestLocalBlockOfDeletedFile(t *testing.T) {
	f := newFixture(t)
	file := f.disk(t)
	claim, pv := f.bindings(localSource(file))
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	f.put(t, claim, pv)
	pod := asBlock(podWith(claimVolume("v", false)))
	f.prepared(t, pod)
	device, err := loop.Find(file)
	if err != nil || device == "" {
		t.Fatalf("loop device %q, %v", device, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	f.tornDown(t, pod.UID)
	if backing, err := loop.BackingFile(device); backing != "" || err != nil {
		t.Errorf("still attached to %q, %v", backing, err)
	}
}
