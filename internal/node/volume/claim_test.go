// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

// bindings returns a claim "data" and the persistent volume "pv" that it is bound to.
func (f *fixture) bindings(source v1.PersistentVolumeSource) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim-uid"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: source,
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim-uid"},
		},
	}
	return claim, pv
}

// claimed adds the claim and the persistent volume of bindings.
func (f *fixture) claimed(t *testing.T, source v1.PersistentVolumeSource) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	t.Helper()
	claim, pv := f.bindings(source)
	f.put(t, claim, pv)
	return claim, pv
}

// put creates or replaces a claim and a persistent volume.
func (f *fixture) put(t *testing.T, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
	t.Helper()
	for _, err := range []error{
		f.client.Tracker().Add(claim.DeepCopy()), f.client.Tracker().Add(pv.DeepCopy()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func claimVolume(name string, readOnly bool) v1.Volume {
	return volumeOf(name, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: readOnly}})
}

func localSource(path string) v1.PersistentVolumeSource {
	return v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}
}

// asBlock makes the container use all volumes as devices.
func asBlock(pod *v1.Pod) *v1.Pod {
	c := &pod.Spec.Containers[0]
	for _, mount := range c.VolumeMounts {
		c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: mount.Name, DevicePath: "/dev/" + mount.Name})
	}
	c.VolumeMounts = nil
	return pod
}

// events returns the events of an error of Prepare.
func events(err error) []string {
	var texts []string
	if err != nil {
		for _, e := range nodepod.VolumeErrors(err) {
			texts = append(texts, e.Reason+" "+e.Message)
		}
	}
	return texts
}

func TestClaimsThatCannotBeUsed(t *testing.T) {
	unprocessed := "FailedMount Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: "
	processing := unprocessed + "error processing PVC ns/data: "
	missing := "/nonexistent/kindred"
	for _, tt := range []struct {
		name   string
		change func(*v1.PersistentVolumeClaim, *v1.PersistentVolume)
		pod    func(*v1.Pod)
		want   string
	}{
		{name: "no claim", change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Name = "other" },
			want: processing + `failed to fetch PVC from API server: persistentvolumeclaims "data" not found`},
		{name: "not bound", change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Status.Phase = v1.ClaimPending },
			want: processing + "PVC is not bound"},
		{name: "being deleted", change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"example.com/other"}
		}, want: processing + "PVC is being deleted"},
		{name: "being deleted and protected", change: func(c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{claimProtection}
		}, want: `FailedMount MountVolume.NewMounter initialization failed for volume "pv" : path "` + missing + `" does not exist`},
		{name: "no volume", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Name = "other" },
			want: processing + `failed to fetch PV pv from API server: persistentvolumes "pv" not found`},
		{name: "half bound", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil },
			want: processing + "found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"},
		{name: "of another claim", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "x" },
			want: processing + "found PV object pv but its pv.Spec.ClaimRef.UID x does not point to claim.UID claim-uid"},
		{name: "block as a file system", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		},
			want: unprocessed + "volume v has volumeMode Block, but is specified in volumeMounts"},
		{name: "a file system as block", pod: func(p *v1.Pod) { asBlock(p) },
			want: unprocessed + "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		{name: "another node", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = onNode("other") },
			want: `FailedMount MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		{name: "this node", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = onNode("node") },
			want: `FailedMount MountVolume.NewMounter initialization failed for volume "pv" : path "` + missing + `" does not exist`},
		{name: "block on another node", pod: func(p *v1.Pod) { asBlock(p) }, change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.NodeAffinity, pv.Spec.VolumeMode = onNode("other"), ptr.To(v1.PersistentVolumeBlock)
		}, want: `FailedMount MapVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		{name: "no device", pod: func(p *v1.Pod) { asBlock(p) }, change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
		}, want: `FailedMapVolume MapVolume.EvalHostSymlinks failed for volume "pv" : lstat /nonexistent: no such file or directory`},
		{name: "a file", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.Local.Path = "/etc/passwd" },
			want: `FailedMount MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported`},
		{name: "a file as block", pod: func(p *v1.Pod) { asBlock(p) }, change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.Local.Path = ptr.To(v1.PersistentVolumeBlock), "/etc/passwd"
		}, want: `FailedMapVolume MapVolume.MapPodDevice failed for volume "pv" : /etc/passwd is not a block device`},
		{name: "unknown type", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{}}
		}, want: unprocessed + `failed to get Plugin from volumeSpec for volume "pv" err=no volume plugin matched: the node does not support volumes of type iscsi`},
		{name: "hostPath with mount options", change: func(_ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}
			pv.Spec.MountOptions = []string{"noatime"}
		}, want: `FailedMount MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not supported for this volume type`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			claim, pv := f.bindings(localSource(missing))
			if tt.change != nil {
				tt.change(claim, pv)
			}
			f.put(t, claim, pv)
			pod := podWith(claimVolume("v", false))
			if tt.pod != nil {
				tt.pod(pod)
			}
			if diff := cmp.Diff([]string{tt.want}, events(f.Prepare(t.Context(), pod))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if err := f.Teardown(t.Context(), pod.UID); err != nil {
				t.Errorf("teardown: %v", err)
			}
		})
	}
}

func onNode(name string) *v1.VolumeNodeAffinity {
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}

// TestFailuresAreOneEventEach: claims that cannot be resolved share upstream's event; others have their own.
func TestFailuresAreOneEventEach(t *testing.T) {
	f := newFixture(t)
	pod := podWith(claimVolume("b", false), claimVolume("a", false), configMapVolume("c", "none"))
	notFound := `error processing PVC ns/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found`
	want := []string{
		`FailedMount MountVolume.SetUp failed for volume "c" : configmap "none" not found`,
		"FailedMount Unable to attach or mount volumes: unmounted volumes=[a b], unattached volumes=[], failed to process volumes=[a b]: " + notFound + "; " + notFound,
	}
	if diff := cmp.Diff(want, events(f.Prepare(t.Context(), pod))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestHostPathOfClaim(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	_, pv := f.claimed(t, v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}})
	pod := podWith(claimVolume("v", true))
	f.prepared(t, pod)
	mounts, err := f.Mounts(t.Context(), pod, &pod.Spec.Containers[0], nil)
	if err != nil || len(mounts) != 1 || mounts[0].HostPath != dir || !mounts[0].Readonly {
		t.Errorf("mounts %v, %v", mounts, err)
	}
	if pv.Spec.HostPath.Path != dir {
		t.Error("the persistent volume was changed")
	}
}

func TestEphemeralVolume(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	claim, pv := f.bindings(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}})
	claim.Name = "p-scratch"
	f.put(t, claim, pv)
	pod := podWith(volumeOf("scratch", v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}))
	want := "PVC ns/p-scratch was not created for pod ns/p (pod is not owner)"
	if err := f.Prepare(t.Context(), pod); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a claim of another owner: %v", err)
	}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: pod.UID, Controller: ptr.To(true)}}
	if err := f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim, "ns"); err != nil {
		t.Fatal(err)
	}
	f.prepared(t, pod)
	if got := f.at(t, pod, "scratch"); got != dir {
		t.Errorf("at %s, want %s", got, dir)
	}
}

// TestGroups: containers get the group of a volume unless the pod has it.
func TestGroups(t *testing.T) {
	f := newFixture(t)
	claim, pv := f.bindings(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	pv.Annotations = map[string]string{gidAnnotation: "1234"}
	f.put(t, claim, pv)
	pod := podWith(claimVolume("v", false), claimVolume("again", false))
	f.prepared(t, pod)
	if diff := cmp.Diff([]int64{1234}, f.Groups(pod)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{1234}}
	if groups := f.Groups(pod); len(groups) > 0 {
		t.Errorf("groups %v, which the pod has already", groups)
	}
}

func TestReadWriteOncePod(t *testing.T) {
	f := newFixture(t)
	claim, pv := f.bindings(v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	f.put(t, claim, pv)
	first, second := podWith(claimVolume("v", false)), podWith(claimVolume("v", false))
	second.UID = "second"
	f.prepared(t, first)
	f.prepared(t, first)
	want := []string{`FailedMount MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`}
	if diff := cmp.Diff(want, events(f.Prepare(t.Context(), second))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, uid := range []types.UID{second.UID, first.UID} {
		if err := f.Teardown(context.Background(), uid); err != nil {
			t.Fatal(err)
		}
	}
	f.prepared(t, second)
}

func TestUnsupportedInlineVolume(t *testing.T) {
	f := newFixture(t)
	pod := podWith(volumeOf("v", v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}))
	err := f.Prepare(t.Context(), pod)
	if err == nil || !strings.HasSuffix(err.Error(), "no volume plugin matched: the node does not support volumes of type rbd") {
		t.Errorf("got %v", err)
	}
}

func TestNFSNeedsItsHelper(t *testing.T) {
	if _, err := os.Stat(filepath.Join("/sbin", "mount.nfs")); err == nil {
		t.Skip("the machine can mount NFS")
	}
	f := newFixture(t)
	pod := podWith(volumeOf("v", v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "127.0.0.1", Path: "/x"}}))
	want := []string{`FailedMount MountVolume.SetUp failed for volume "v" : the node has no mount.nfs: install nfs-common (Debian) or nfs-utils (Fedora)`}
	if diff := cmp.Diff(want, events(f.Prepare(t.Context(), pod))); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestClaimOfRunningPod: a claim that disappears does not fail the volumes of a pod that has it mounted.
func TestClaimOfRunningPod(t *testing.T) {
	f := newFixture(t)
	f.claimed(t, v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}})
	pod := podWith(claimVolume("v", false), configMapVolume("c", "c"))
	f.prepared(t, pod)
	if err := f.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "ns", "data"); err != nil {
		t.Fatal(err)
	}
	f.api.set("c", map[string]string{"one": "new"})
	f.prepared(t, pod)
	expectFile(t, filepath.Join(f.at(t, pod, "c"), "one"), "new")
	f.at(t, pod, "v")
}
