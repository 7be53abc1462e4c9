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
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/node/csi"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// localBlock is a block device of the node, or a file of the node's own provisioner, which becomes a loop
// device. A link in the pod's directory to the device or file is the pod's reference to it. The link of a
// file is not to its loop device, because after a restart of the machine that number may be another file's.
//
// Upstream also attaches a loop device to each block device while pods use it, so that a device that
// disappears keeps its number. That guards against a cluster that detaches devices in use; local devices
// are not detached.
type localBlock struct {
	bound
	manager *Manager
	pod     *v1.Pod
	link    string
}

func (m *Manager) localBlock(pod *v1.Pod, b bound) *localBlock {
	return &localBlock{bound: b, manager: m, pod: pod, link: m.localLink(pod.UID, b.pv.Name)}
}

func (m *Manager) localLink(uid types.UID, pv string) string {
	return filepath.Join(m.options.Layout.VolumeDevicesDir(uid), localDir, pv)
}

func (v *localBlock) path() string   { return "" }
func (v *localBlock) readOnly() bool { return v.bound.readOnly }

func (v *localBlock) prepare(context.Context) (time.Time, error) {
	real, err := filepath.EvalSymlinks(v.pv.Spec.Local.Path)
	if err != nil {
		return time.Time{}, mapStep("EvalHostSymlinks", err)
	}
	kind, err := typeOf(real)
	switch {
	case err != nil:
		return time.Time{}, mapStep("MapPodDevice", err)
	case kind == v1.HostPathFile && v.manager.isLoopFile(real):
	case kind != v1.HostPathBlockDev:
		return time.Time{}, mapStep("MapPodDevice", fmt.Errorf("%s is not a block device", real))
	}
	v.manager.sharing.LockKey(v.pv.Name)
	defer func() { _ = v.manager.sharing.UnlockKey(v.pv.Name) }()
	fresh, err := makeLink(real, v.link)
	if err != nil {
		return time.Time{}, mapStep("MapPodDevice", err)
	}
	if kind == v1.HostPathFile {
		if _, err := loop.Attach(real); err != nil {
			return time.Time{}, mapStep("MapPodDevice", err)
		}
	}
	if fresh {
		v.manager.event(nodepod.Reference(v.pod), v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(
			"MapVolume.MapPodDevice succeeded for volume %q volumeMapPath %q", v.pv.Name, filepath.Dir(v.link)))
	}
	return time.Time{}, nil
}

// isLoopFile reports whether a file is the provisioner's. Other files are never attached: a volume may name
// any path of the node.
func (m *Manager) isLoopFile(path string) bool {
	if m.options.LoopFiles == "" {
		return false
	}
	root, err := filepath.EvalSymlinks(m.options.LoopFiles)
	return err == nil && strings.HasPrefix(path, root+"/")
}

// makeLink makes a link, and reports whether it is new.
func makeLink(target, link string) (fresh bool, err error) {
	if have, err := os.Readlink(link); err == nil && have == target {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return false, err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, os.Symlink(target, link)
}

// expand has nothing to do: prepare gives a loop device the size of its file.
func (v *localBlock) expand(context.Context, int64) (csi.Outcome, error) { return csi.Expanded, nil }

func (v *localBlock) device() (string, error) {
	target, err := os.Readlink(v.link)
	if err != nil {
		return "", err
	}
	if !v.manager.isLoopFile(target) {
		return v.link, nil
	}
	device, err := loop.Find(target)
	if err == nil && device == "" {
		err = fmt.Errorf("%s has no loop device", target)
	}
	return device, err
}

// teardownLocalBlock removes a pod's link, after the loop device if no other pod uses it.
func (m *Manager) teardownLocalBlock(uid types.UID, pv string) error {
	m.sharing.LockKey(pv)
	defer func() { _ = m.sharing.UnlockKey(pv) }()
	link := m.localLink(uid, pv)
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	if m.isLoopFile(target) && len(m.users(localDir, pv, uid)) == 0 {
		if err := detachLoop(target); err != nil {
			return err
		}
	}
	return os.Remove(link)
}

func detachLoop(file string) error {
	device, err := loop.Find(file)
	if err != nil || device == "" {
		return err
	}
	return loop.Detach(device)
}
