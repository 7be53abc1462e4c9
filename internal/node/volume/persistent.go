// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"github.com/kindred-project/kindred/internal/node/csi"
)

// blockVolume is a volume that containers get as a device.
type blockVolume interface {
	volume
	// device returns the path of the device. The volume must be prepared.
	device() (string, error)
}

// openBound returns the volume that a claim is bound to.
func (m *Manager) openBound(pod *v1.Pod, spec *v1.Volume) (volume, error) {
	b, ok := m.state(pod.UID).boundTo(spec.Name)
	if !ok {
		return nil, fmt.Errorf("volume %q is not prepared", spec.Name)
	}
	source := &b.pv.Spec.PersistentVolumeSource
	switch {
	case source.HostPath != nil:
		return &hostPath{source: source.HostPath, onlyRead: b.readOnly, options: mountOptions(b.pv)}, nil
	case source.Local != nil && b.isBlock():
		return m.localBlock(pod, b), nil
	case source.Local != nil:
		return m.local(pod, b), nil
	case source.CSI != nil && m.csi != nil:
		return m.csiVolume(m.csiOf(pod, spec)), nil
	case source.NFS != nil:
		return m.nfs(pod, b.pv.Name, source.NFS, b.readOnly, mountOptions(b.pv)), nil
	}
	return nil, unsupported(b.pv.Name, source)
}

// unsupported returns the error for a kind of volume that the node does not know.
func unsupported(volume string, source any) error {
	return unresolved{fmt.Errorf("failed to get Plugin from volumeSpec for volume %q err=no volume plugin matched: "+
		"the node does not support volumes of type %s", volume, typeName(source))}
}

// typeName returns the name of the one field that is set in a volume source.
func typeName(source any) string {
	data, err := json.Marshal(source)
	if err != nil {
		return "unknown"
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return "unknown"
	}
	for name := range fields {
		return name
	}
	return "unknown"
}

// checkBound returns why the node must not set the volume up.
func (m *Manager) checkBound(pod *v1.Pod, b bound) error {
	step := mountStep
	if b.isBlock() {
		step = mapStep
	}
	if err := storagehelpers.CheckNodeAffinity(b.pv, m.options.NodeLabels()); err != nil {
		return notOnThisNode(b, err)
	}
	if !isExclusive(b.pv) {
		return nil
	}
	elsewhere, err := m.usedElsewhere(pod, b)
	if elsewhere {
		err = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return step("SetUp", err)
}

func notOnThisNode(b bound, err error) error {
	name := "MountVolume.NodeAffinity check failed"
	if b.isBlock() {
		name = "MapVolume.NodeAffinity check failed"
	}
	return &stepError{step: name, reason: failedMount, err: err}
}

// isExclusive reports whether only one pod may use the volume. With several access modes, the pod's is unknown.
func isExclusive(pv *v1.PersistentVolume) bool {
	return slices.Equal(pv.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod})
}

// usedElsewhere reports whether another pod of the node uses a persistent volume: one that this agent has
// prepared, or one that has the volume on disk.
func (m *Manager) usedElsewhere(pod *v1.Pod, b bound) (bool, error) {
	for uid, state := range m.states() {
		if uid != pod.UID && slices.ContainsFunc(state.allBound(), func(o bound) bool { return o.pv.Name == b.pv.Name }) {
			return true, nil
		}
	}
	for _, kind := range dataKinds {
		if len(m.users(kind, b.pv.Name, pod.UID)) > 0 {
			return true, nil
		}
	}
	if b.pv.Spec.CSI == nil || m.csi == nil {
		return false, nil
	}
	return m.csi.UsedElsewhere(&csi.Volume{Pod: pod, Name: b.pv.Name, PV: b.pv})
}

// users returns the pods, other than the given one, that have a volume of a kind on disk. A volume's directory
// or link exists from before it is set up until after it is torn down, also through a crash. It is therefore
// the reference that keeps what the pods share.
func (m *Manager) users(kind, name string, but types.UID) []types.UID {
	var users []types.UID
	for _, part := range []string{"volumes", "volumeDevices"} {
		found, _ := filepath.Glob(filepath.Join(m.options.Layout.PodsDir(), "*", part, kind, name))
		for _, path := range found {
			relative := strings.TrimPrefix(path, m.options.Layout.PodsDir()+"/")
			uid, _, _ := strings.Cut(relative, "/")
			if types.UID(uid) != but {
				users = append(users, types.UID(uid))
			}
		}
	}
	return users
}

// mountOptions returns the volume's mount options.
func mountOptions(pv *v1.PersistentVolume) []string {
	if options, ok := pv.Annotations[v1.MountOptionAnnotation]; ok {
		return strings.Split(options, ",")
	}
	return pv.Spec.MountOptions
}

// joinOptions returns the sorted union of mount options.
func joinOptions(options ...string) []string {
	joined := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	slices.Sort(joined)
	return slices.Compact(joined)
}
