// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/csi/csitest"
)

// TestClaims runs pods with claims on a real containerd.
func TestClaims(t *testing.T) {
	b := newBed(t)
	b.options.LoopFiles = t.TempDir()
	b.start()
	defer func() { b.stop() }()
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"local volume", localVolume},
		{"local volume and a new agent", localVolumeAndNewAgent},
		{"block volume", blockVolume},
		{"CSI volume", csiVolume},
	} {
		b.T = t
		if !t.Run(test.name, func(t *testing.T) { b.T = t; test.run(b) }) {
			break
		}
		b.T = t
	}
}

// claim creates a claim that is bound to a local volume with the path.
func (b *bed) claim(name, path string, mode v1.PersistentVolumeMode) v1.Volume {
	b.Helper()
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			VolumeMode:             &mode,
			ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{nodeName}}},
			}}}},
		},
	}
	if _, err := b.client.CoreV1().PersistentVolumeClaims("default").Create(b.Context(), claim, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := b.client.CoreV1().PersistentVolumes().Create(b.Context(), pv, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// userOf returns a pod that runs a command with a volume at /data.
func userOf(name string, volume v1.Volume, command string) *v1.Pod {
	p := podOf(name, busybox("c", command))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Volumes = []v1.Volume{volume}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: volume.Name, MountPath: "/data"}}
	return p
}

// succeeds runs a pod to its end, and deletes it.
func (b *bed) succeeds(p *v1.Pod) {
	b.Helper()
	b.create(p)
	got := b.until(p.Name, "over", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed })
	if got.Status.Phase != v1.PodSucceeded {
		b.Errorf("pod %s: %+v", p.Name, got.Status.ContainerStatuses)
	}
	b.delete(p.Name)
}

// localVolume: what a pod writes outlives it, and the next pod reads it.
func localVolume(b *bed) {
	path := b.TempDir()
	volume := b.claim("local", path, v1.PersistentVolumeFilesystem)
	b.succeeds(userOf("writer", volume, "echo kept > /data/f"))
	if data, err := os.ReadFile(filepath.Join(path, "f")); err != nil || string(data) != "kept\n" {
		b.Errorf("after the writer: %q, %v", data, err)
	}
	b.succeeds(userOf("reader", volume, "[ $(cat /data/f) = kept ]"))
	readOnly := userOf("read-only", volume, "! touch /data/g")
	readOnly.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	b.succeeds(readOnly)
}

// localVolumeAndNewAgent: a new agent takes a running pod's volume over and tears it down.
func localVolumeAndNewAgent(b *bed) {
	path := b.TempDir()
	volume := b.claim("restart", path, v1.PersistentVolumeFilesystem)
	b.create(userOf("stays", volume, "trap 'exit 0' TERM; while :; do date > /data/f; sleep 0.05; done"))
	b.until("stays", "ready", podReady)
	b.stop()
	b.start()
	b.until("stays", "ready", podReady)
	b.delete("stays")
	if mounted := b.mounted(); mounted != "" {
		b.Errorf("still mounted:\n%s", mounted)
	}
	if _, err := os.Stat(filepath.Join(path, "f")); err != nil {
		b.Error(err)
	}
}

// mounted returns the mounts of data volumes.
func (b *bed) mounted() string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, b.options.RootDir) && strings.Contains(line, "kubernetes.io~local-volume") {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// blockVolume: a file of the provisioner is a device in the pod, and keeps what the pod writes.
func blockVolume(b *bed) {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		b.Skip("the machine has no loop devices")
	}
	file := filepath.Join(b.options.LoopFiles, "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	volume := b.claim("block", file, v1.PersistentVolumeBlock)
	for i, command := range []string{
		"printf kept | dd of=/dev/disk conv=fsync", "[ $(dd if=/dev/disk bs=4 count=1) = kept ]",
	} {
		p := userOf(fmt.Sprintf("block-%d", i), volume, command)
		p.Spec.Containers[0].VolumeMounts = nil
		p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: volume.Name, DevicePath: "/dev/disk"}}
		b.succeeds(p)
	}
}

// csiVolume: a driver registers, its volume is attached, staged and published, and survives a new agent.
func csiVolume(b *bed) {
	driver := csitest.New(b.T, "test.csi.example.com")
	driver.Announce(b.T, b.options.layout().RegistryDir())
	if err := os.MkdirAll(filepath.Join(driver.Data, "vol"), 0o755); err != nil {
		b.Fatal(err)
	}
	volume := b.claim("csi", "", v1.PersistentVolumeFilesystem)
	pv, err := b.client.CoreV1().PersistentVolumes().Get(b.Context(), "pv-csi", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver.Name, VolumeHandle: "vol"}}
	if _, err := b.client.CoreV1().PersistentVolumes().Update(b.Context(), pv, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.create(userOf("csi", volume, "trap 'exit 0' TERM; echo kept > /data/f; while :; do sleep 0.05; done"))
	b.attach(driver.Name, "vol")
	b.until("csi", "ready", podReady)
	b.stop()
	b.start()
	b.delete("csi")
	if left := driver.Left(); left != "" {
		b.Errorf("the driver has %s", left)
	}
	if data, err := os.ReadFile(filepath.Join(driver.Data, "vol", "f")); err != nil || string(data) != "kept\n" {
		b.Errorf("the volume has %q, %v", data, err)
	}
	b.untilNode("uses no volume", func(n *v1.Node) bool { return len(n.Status.VolumesInUse) == 0 })
	object, err := b.client.StorageV1().CSINodes().Get(b.Context(), nodeName, metav1.GetOptions{})
	if err != nil || len(object.Spec.Drivers) != 1 || object.Spec.Drivers[0].Name != driver.Name {
		b.Errorf("CSINode %+v, %v", object, err)
	}
}

// attach attaches a volume, as the controller and the driver's attacher do, once the node says that it needs it.
func (b *bed) attach(driver, handle string) {
	b.Helper()
	name := v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
	b.untilNode("needs "+string(name), func(n *v1.Node) bool { return slices.Contains(n.Status.VolumesInUse, name) })
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+nodeName)))},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	if _, err := b.client.StorageV1().VolumeAttachments().Create(b.Context(), attachment, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"volumesAttached":[{"name":%q,"devicePath":""}]}}`, name)
	if _, err := b.client.CoreV1().Nodes().Patch(b.Context(), nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		b.Fatal(err)
	}
}

// untilNode waits for a state of the node.
func (b *bed) untilNode(what string, wanted func(*v1.Node) bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if n, err := b.client.CoreV1().Nodes().Get(b.Context(), nodeName, metav1.GetOptions{}); err == nil && wanted(n) {
			return
		}
	}
	b.Fatalf("the node never %s", what)
}
