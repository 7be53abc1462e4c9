// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mountutils "k8s.io/mount-utils"

	"github.com/kindred-project/kindred/internal/mounts"
	"github.com/kindred-project/kindred/internal/node/csi"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// defaultFileSystem is upstream's for local devices.
const defaultFileSystem = "ext4"

// local is a directory or the file system of a block device of the node. A directory is bind-mounted into
// the pod's directory; a device is mounted once for all pods, and that mount is bind-mounted.
type local struct {
	bound
	manager *Manager
	pod     *v1.Pod
	dir     string
}

func (m *Manager) local(pod *v1.Pod, b bound) *local {
	return &local{bound: b, manager: m, pod: pod, dir: m.localPath(pod.UID, b.pv.Name)}
}

func (m *Manager) localPath(uid types.UID, pv string) string {
	return filepath.Join(m.options.Layout.VolumesDir(uid), localDir, pv)
}

// deviceMount returns the directory at which a device is mounted for all pods.
func (m *Manager) deviceMount(pv string) string {
	return filepath.Join(m.options.Layout.SharedVolumesDir("local-volume"), "mounts", pv)
}

func (v *local) path() string   { return v.dir }
func (v *local) readOnly() bool { return v.bound.readOnly }

func (v *local) prepare(context.Context) (time.Time, error) {
	path := v.pv.Spec.Local.Path
	isDevice, err := isDevice(path)
	if err != nil {
		return time.Time{}, &stepError{step: "MountVolume.NewMounter initialization failed", reason: failedMount, err: err}
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return time.Time{}, fmt.Errorf("invalid path: %s must not contain '..'", path)
	}
	v.manager.sharing.LockKey(v.pv.Name)
	defer func() { _ = v.manager.sharing.UnlockKey(v.pv.Name) }()
	if mounted, err := mountinfo.Mounted(v.dir); err == nil && mounted {
		return time.Time{}, nil
	}
	// The directory is the pod's reference to a shared mount, and therefore the first step.
	if err := os.MkdirAll(v.dir, 0o750); err != nil {
		return time.Time{}, err
	}
	if isDevice {
		if path, err = v.mountDevice(); err != nil {
			return time.Time{}, mountStep("MountDevice", err)
		}
	}
	return time.Time{}, v.bind(path)
}

// isDevice reports whether a path is a block device. It fails if it is neither a directory nor a block device.
func isDevice(path string) (bool, error) {
	kind, err := typeOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return false, err
	case kind == v1.HostPathBlockDev:
		return true, nil
	case kind == v1.HostPathDirectory:
		return false, nil
	}
	return false, errors.New("only directory and block device are supported")
}

// mountDevice formats the device if it is empty, and mounts it for all pods.
func (v *local) mountDevice() (string, error) {
	target, source := v.manager.deviceMount(v.pv.Name), v.pv.Spec.Local
	mounted, err := mountinfo.Mounted(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || mounted {
		return target, err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return "", err
	}
	fsType := defaultFileSystem
	if source.FSType != nil {
		fsType = *source.FSType
	}
	options := mountOptions(v.pv)
	if v.bound.readOnly {
		options = append([]string{"ro"}, options...)
	}
	mounter := mountutils.NewSafeFormatAndMount(v.manager.mounter, v.manager.exec)
	if err := mounter.FormatAndMount(source.Path, target, fsType, joinOptions(options...)); err != nil {
		return "", fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", source.Path, target, fsType, err)
	}
	return target, nil
}

// bind gives the volume to the pod's group and mounts it. The group is set before, so that a mounted volume
// is complete. Only the first pod sets it.
func (v *local) bind(source string) error {
	options := append([]string{"bind"}, mountOptions(v.pv)...)
	if v.bound.readOnly {
		return v.manager.mountData(v.dir, source, "", joinOptions(append(options, "ro")...))
	}
	if len(v.manager.users(localDir, v.pv.Name, v.pod.UID)) > 0 {
		v.warnOfGroup(source)
	} else if err := ownData(v.pod, source); err != nil {
		return err
	}
	return v.manager.mountData(v.dir, source, "", joinOptions(options...))
}

// expand grows the file system of a device. A directory has no size of its own.
func (v *local) expand(context.Context, int64) (csi.Outcome, error) {
	device, err := isDevice(v.pv.Spec.Local.Path)
	if err != nil {
		return csi.Failed, err
	}
	if !device {
		return csi.Expanded, nil
	}
	if _, err := mountutils.NewResizeFs(v.manager.exec).Resize(v.pv.Spec.Local.Path, v.dir); err != nil {
		return csi.Failed, err
	}
	return csi.Expanded, nil
}

// warnOfGroup records an event if another pod has given the volume to another group.
func (v *local) warnOfGroup(source string) {
	want := fsGroup(v.pod)
	info, err := os.Stat(source)
	if want == nil || err != nil {
		return
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int64(stat.Gid) == *want {
		return
	}
	v.manager.event(nodepod.Reference(v.pod), v1.EventTypeWarning, "AlreadyMountedVolume", fmt.Sprintf(
		"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *want, v.pv.Name, stat.Gid))
}

// teardownLocal unmounts a pod's volume, and the device if no other pod uses it. The pod's directory is
// removed last, so that an interrupted teardown is repeated.
func (m *Manager) teardownLocal(uid types.UID, pv string) error {
	m.sharing.LockKey(pv)
	defer func() { _ = m.sharing.UnlockKey(pv) }()
	dir := m.localPath(uid, pv)
	if err := mounts.UnmountAt(dir); err != nil {
		return err
	}
	if len(m.users(localDir, pv, uid)) == 0 {
		if err := unmountData(m.deviceMount(pv)); err != nil {
			return err
		}
	}
	return removeEmpty(dir)
}
