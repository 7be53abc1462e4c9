// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/mounts"
	"github.com/kindred-project/kindred/internal/node/csi"
	"github.com/kindred-project/kindred/internal/node/csi/csitest"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
)

const driverName = "test.csi.example.com"

// csiFixture is a manager with a driver, and a claim "data" that is bound to its volume "vol".
type csiFixture struct {
	*fixture
	driver   *csitest.Driver
	settings *storagev1.CSIDriver
	indexer  cache.Indexer
	node     atomic.Pointer[v1.Node] // read by the agent's goroutines
	pv       *v1.PersistentVolume
	claim    *v1.PersistentVolumeClaim
}

func newCSIFixture(t *testing.T) *csiFixture {
	t.Helper()
	asRoot(t)
	f := &csiFixture{
		fixture: newFixture(t), driver: csitest.New(t, driverName),
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		settings: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr.To(false), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		}},
	}
	f.node.Store(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}})
	f.set(t)
	if err := f.client.Tracker().Add(f.node.Load().DeepCopy()); err != nil {
		t.Fatal(err)
	}
	f.options.CSI = &csi.Options{
		Layout: f.options.Layout, Client: f.client, Clock: f.clock, Node: f.node.Load,
		Drivers: storagelisters.NewCSIDriverLister(f.indexer), Synced: func() bool { return true },
	}
	f.restart(t)
	if err := os.MkdirAll(filepath.Join(f.driver.Data, "vol"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mounts.DetachAt(f.options.Layout.Root) })
	f.claim, f.pv = f.bindings(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol"}})
	f.put(t, f.claim, f.pv)
	return f
}

// set changes the CSIDriver object.
func (f *csiFixture) set(t *testing.T) {
	t.Helper()
	if err := f.indexer.Update(f.settings); err != nil {
		t.Fatal(err)
	}
}

// restart replaces the agent, as after a SIGKILL, and registers the driver with it.
func (f *csiFixture) restart(t *testing.T) {
	t.Helper()
	f.Manager = New(f.options)
	if err := f.csi.Register(t.Context(), driverName, f.driver.Endpoint, []string{"1.0.0"}); err != nil {
		t.Fatal(err)
	}
}

func (f *csiFixture) took(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.driver.Took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// nothingLeft expects that nothing of any volume is left on the node.
func (f *csiFixture) nothingLeft(t *testing.T) {
	t.Helper()
	if left := f.driver.Left(); left != "" {
		t.Errorf("the driver has %s", left)
	}
	var files []string
	_ = filepath.WalkDir(f.options.Layout.SharedVolumesDir("csi"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() || filepath.Base(path) == "globalmount" {
			files = append(files, path)
		}
		return nil
	})
	if len(files) > 0 {
		t.Errorf("left on disk: %v", files)
	}
	if names := f.csi.InUse(); len(names) > 0 {
		t.Errorf("still in use: %v", names)
	}
}

func second(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Name, pod.UID = "second", "second"
	return pod
}

// TestCSIVolume: a volume is staged once for two pods, published to each, and unstaged after the last.
func TestCSIVolume(t *testing.T) {
	f := newCSIFixture(t)
	pod := podWith(claimVolume("v", false))
	other := second(pod)
	f.prepared(t, pod)
	f.took(t, "Stage vol", "Publish vol")
	f.prepared(t, pod)
	f.took(t)
	f.prepared(t, other)
	f.took(t, "Publish vol")
	writeFile(t, filepath.Join(f.at(t, pod, "v"), "f"), "kept")
	expectFile(t, filepath.Join(f.at(t, other, "v"), "f"), "kept")

	f.tornDown(t, pod.UID)
	f.took(t, "Unpublish vol")
	expectFile(t, filepath.Join(f.at(t, other, "v"), "f"), "kept")
	f.tornDown(t, other.UID)
	f.took(t, "Unpublish vol", "Unstage vol")
	f.nothingLeft(t)
	expectFile(t, filepath.Join(f.driver.Data, "vol", "f"), "kept")
}

func TestCSIVolumeOfDriverWithoutStaging(t *testing.T) {
	f := newCSIFixture(t)
	f.driver.Capabilities = nil
	pod := podWith(claimVolume("v", false))
	f.prepared(t, pod)
	f.tornDown(t, pod.UID)
	f.took(t, "Publish vol", "Unpublish vol")
	f.nothingLeft(t)
}

// TestCSIRequests: the driver gets what the API says about the volume.
func TestCSIRequests(t *testing.T) {
	f := newCSIFixture(t)
	f.driver.Capabilities = append(f.driver.Capabilities,
		csispec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csispec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	f.settings.Spec.PodInfoOnMount = ptr.To(true)
	f.settings.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	f.set(t)
	pv := f.pv.DeepCopy()
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	pv.Spec.MountOptions = []string{"noatime"}
	pv.Spec.CSI.FSType = "ext4"
	pv.Spec.CSI.VolumeAttributes = map[string]string{"a": "b"}
	pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "storage", Name: "stage"}
	pv.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "storage", Name: "publish"}
	for _, object := range []*v1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "stage"}, Data: map[string][]byte{"k": []byte("staged")}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "publish"}, Data: map[string][]byte{"k": []byte("published")}},
	} {
		if err := f.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), pv, ""); err != nil {
		t.Fatal(err)
	}
	pod := podWith(claimVolume("v", false))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(42))}
	f.prepared(t, pod)

	var stage *csispec.NodeStageVolumeRequest
	var publish *csispec.NodePublishVolumeRequest
	for _, r := range f.driver.Requests() {
		switch r := r.(type) {
		case *csispec.NodeStageVolumeRequest:
			stage = r
		case *csispec.NodePublishVolumeRequest:
			publish = r
		}
	}
	for what, capability := range map[string]*csispec.VolumeCapability{"stage": stage.VolumeCapability, "publish": publish.VolumeCapability} {
		mount := capability.GetMount()
		if capability.AccessMode.Mode != csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER ||
			mount.FsType != "ext4" || strings.Join(mount.MountFlags, ",") != "noatime" || mount.VolumeMountGroup != "42" {
			t.Errorf("%s: capability %v", what, capability)
		}
	}
	if stage.Secrets["k"] != "staged" || publish.Secrets["k"] != "published" || stage.VolumeContext["a"] != "b" {
		t.Errorf("secrets %v and %v, context %v", stage.Secrets, publish.Secrets, stage.VolumeContext)
	}
	tokens := publish.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"]
	delete(publish.VolumeContext, "csi.storage.k8s.io/serviceAccount.tokens")
	want := map[string]string{
		"a": "b", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "uid",
		"csi.storage.k8s.io/serviceAccount.name": "sa", "csi.storage.k8s.io/ephemeral": "false",
	}
	if diff := cmp.Diff(want, publish.VolumeContext); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(tokens, `{"vault":{"token":"uid:[vault]:1","expirationTimestamp":`) {
		t.Errorf("tokens %s", tokens)
	}
	f.tornDown(t, pod.UID)
}

// TestCSIFailures: events have upstream's texts, and a pod whose volume was never set up needs no driver.
func TestCSIFailures(t *testing.T) {
	internal := status.Error(codes.Internal, "broken")
	for _, tt := range []struct {
		name   string
		change func(*csiFixture, *v1.Pod)
		want   string
		calls  []string // of the teardown
	}{
		{name: "no driver", change: func(f *csiFixture, _ *v1.Pod) { f.csi.Deregister(t.Context(), driverName, f.driver.Endpoint) },
			want: `FailedMount MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name ` + driverName + ` not found in the list of registered CSI drivers`},
		{name: "stage refused", change: func(f *csiFixture, _ *v1.Pod) { f.driver.Before = func(string) error { return internal } },
			want: `FailedMount MountVolume.MountDevice failed for volume "pv" : rpc error: code = Internal desc = broken`},
		{name: "publish refused", change: func(f *csiFixture, _ *v1.Pod) {
			f.driver.Before = func(call string) error {
				if call == "Publish" {
					return internal
				}
				return nil
			}
		}, want: `FailedMount MountVolume.SetUp failed for volume "pv" : rpc error: code = Internal desc = broken`, calls: []string{"Unstage vol"}},
		{name: "no stage secret", change: func(f *csiFixture, _ *v1.Pod) {
			pv := f.pv.DeepCopy()
			pv.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "x", Name: "y"}
			_ = f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), pv, "")
		}, want: `FailedMount MountVolume.MountDevice failed for volume "pv" : fetching NodeStageSecretRef x/y failed: kubernetes.io/csi: failed to find the secret y in the namespace x with error: secrets "y" not found`},
		{name: "inline without CSIDriver", change: func(f *csiFixture, p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{volumeOf("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "other"}})}
		}, want: `FailedMount MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported by driver other (no CSIDriver object)`},
		{name: "inline not supported", change: func(_ *csiFixture, p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{volumeOf("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}})}
		}, want: `FailedMount MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported by driver ` + driverName + ` (only supports ["Persistent"])`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newCSIFixture(t)
			pod := podWith(claimVolume("v", false))
			tt.change(f, pod)
			if diff := cmp.Diff([]string{tt.want}, events(f.Prepare(t.Context(), pod))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			f.driver.Took()
			f.tornDown(t, pod.UID)
			f.took(t, tt.calls...)
			f.nothingLeft(t)
		})
	}
}

func TestInlineCSIVolume(t *testing.T) {
	f := newCSIFixture(t)
	f.settings.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	f.settings.Spec.RequiresRepublish = ptr.To(true)
	f.set(t)
	f.driver.Capabilities = nil
	pod := podWith(volumeOf("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName, ReadOnly: ptr.To(true)}}))
	volumeID := f.csiOf(pod, &pod.Spec.Volumes[0]).Handle()
	if err := os.MkdirAll(filepath.Join(f.driver.Data, volumeID), 0o755); err != nil {
		t.Fatal(err)
	}
	f.prepared(t, pod)
	f.prepared(t, pod) // the driver wants to be called again
	f.took(t, "Publish "+volumeID, "Publish "+volumeID)
	if v, err := f.open(pod, &pod.Spec.Volumes[0]); err != nil || !v.readOnly() {
		t.Errorf("not read-only: %v", err)
	}
	f.tornDown(t, pod.UID)
	f.took(t, "Unpublish "+volumeID)
	f.nothingLeft(t)
}

// TestCSIDevice: a block volume is staged, published and unpublished as a device.
func TestCSIDevice(t *testing.T) {
	f := newCSIFixture(t)
	pv := f.pv.DeepCopy()
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	if err := f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), pv, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.driver.Data, "vol")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(f.driver.Data, "vol"), "device")
	pod := asBlock(podWith(claimVolume("v", false)))
	f.prepared(t, pod)
	f.took(t, "Stage vol", "Publish vol")
	devices, err := f.Devices(pod, &pod.Spec.Containers[0])
	if err != nil || len(devices) != 1 {
		t.Fatalf("devices %v, %v", devices, err)
	}
	expectFile(t, devices[0].HostPath, "device")
	f.restart(t)
	f.tornDown(t, pod.UID)
	f.took(t, "Unpublish vol", "Unstage vol")
	f.nothingLeft(t)
}

// TestCSIAttach: a volume is staged only once the Node's status has it as attached and in use.
func TestCSIAttach(t *testing.T) {
	f := newCSIFixture(t)
	f.settings.Spec.AttachRequired = nil
	f.set(t)
	changed := make(chan struct{}, 10)
	f.options.CSI.InUseChanged = func() { changed <- struct{}{} }
	f.restart(t)
	pod := podWith(claimVolume("v", false))
	done := make(chan error, 1)
	go func() { done <- f.Prepare(t.Context(), pod) }()
	select {
	case <-changed:
	case err := <-done:
		t.Fatalf("not waiting: %v", err)
	}
	name := v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^vol")
	if diff := cmp.Diff([]v1.UniqueVolumeName{name}, f.csi.InUse()); diff != "" {
		t.Errorf("in use (-want +got):\n%s", diff)
	}
	f.took(t)
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: f.csiOf(pod, &pod.Spec.Volumes[0]).AttachmentName("node")},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "7"}},
	}
	if err := f.client.Tracker().Add(attachment); err != nil {
		t.Fatal(err)
	}
	node := f.node.Load().DeepCopy()
	node.Status.VolumesInUse = []v1.UniqueVolumeName{name}
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
	f.node.Store(node)
	f.csi.NodeChanged()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting")
	}
	f.took(t, "Stage vol", "Publish vol")
	for _, r := range f.driver.Requests() {
		var context map[string]string
		switch r := r.(type) {
		case *csispec.NodeStageVolumeRequest:
			context = r.PublishContext
		case *csispec.NodePublishVolumeRequest:
			context = r.PublishContext
		}
		if context["lun"] != "7" {
			t.Errorf("publish context %v of %T", context, r)
		}
	}
	f.restart(t)
	if diff := cmp.Diff([]v1.UniqueVolumeName{name}, f.csi.InUse()); diff != "" {
		t.Errorf("in use after a restart (-want +got):\n%s", diff)
	}
	f.tornDown(t, pod.UID)
	f.nothingLeft(t)
}

// TestCSIVolumeIsNotAttached: an attempt ends when the time for attachment is over. A pod fails only if the driver
// has reported that the node has too many volumes, and says how often the limit changes.
func TestCSIVolumeIsNotAttached(t *testing.T) {
	exhausted := &storagev1.VolumeError{Message: "full", ErrorCode: ptr.To(int32(codes.ResourceExhausted))}
	for name, c := range map[string]struct {
		period  *int64
		failure *storagev1.VolumeError
		tooMany bool
	}{
		"no error":              {period: ptr.To(int64(60))},
		"another error":         {period: ptr.To(int64(60)), failure: &storagev1.VolumeError{Message: "broken", ErrorCode: ptr.To(int32(codes.Internal))}},
		"error without a code":  {period: ptr.To(int64(60)), failure: &storagev1.VolumeError{Message: "full"}},
		"limit does not change": {failure: exhausted},
		"too many volumes":      {period: ptr.To(int64(60)), failure: exhausted, tooMany: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCSIFixture(t)
			f.settings.Spec.AttachRequired, f.settings.Spec.NodeAllocatableUpdatePeriodSeconds = nil, c.period
			f.set(t)
			f.restart(t)
			f.driver.SetInfo(&csispec.NodeGetInfoResponse{NodeId: "node-id", MaxVolumesPerNode: 3})
			pod := podWith(claimVolume("v", false), configMapVolume("missing", "missing"))
			attachment := &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: (&csi.Volume{Pod: pod, PV: f.pv}).AttachmentName("node")},
				Status:     storagev1.VolumeAttachmentStatus{AttachError: c.failure},
			}
			if err := f.client.Tracker().Add(attachment); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- f.Prepare(t.Context(), pod) }()
			err := f.stepUntil(t, done, csi.AttachLimit)
			var tooMany *nodepod.TooManyVolumes
			if errors.As(err, &tooMany) != c.tooMany {
				t.Fatalf("error %v", err)
			}
			node, err := f.client.StorageV1().CSINodes().Get(t.Context(), "node", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if updated := node.Spec.Drivers[0].Allocatable != nil; updated != c.tooMany {
				t.Errorf("the limit was updated: %t", updated)
			}
			if !c.tooMany {
				return
			}
			want := "Node has reached its volume attachment limit, rejecting pod. " +
				"unmounted volumes=[missing v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
			if tooMany.Message != want {
				t.Errorf("message %q", tooMany.Message)
			}
		})
	}
}

// stepUntil steps the clock until an attempt that waits has ended, and returns its result. It may step before the
// attempt looks at the clock.
func (f *csiFixture) stepUntil(t *testing.T, done <-chan error, d time.Duration) error {
	t.Helper()
	for steps := range 500 {
		select {
		case err := <-done:
			if steps == 0 {
				t.Fatalf("not waiting: %v", err)
			}
			return err
		case <-time.After(20 * time.Millisecond):
			f.clock.Step(d)
		}
	}
	t.Fatal("still waiting")
	return nil
}

// TestDriverDies: a driver that dies in a call is called again; nothing is mounted twice.
func TestDriverDies(t *testing.T) {
	for _, call := range []string{"Stage", "Publish"} {
		t.Run(call, func(t *testing.T) {
			f := newCSIFixture(t)
			died := false
			f.driver.After = func(name string) error {
				if name == call && !died {
					died = true
					go f.driver.Stop()
					time.Sleep(20 * time.Millisecond)
					return errors.New("dying")
				}
				return nil
			}
			pod := podWith(claimVolume("v", false))
			if err := f.Prepare(t.Context(), pod); err == nil {
				t.Fatal("the call of a driver that died succeeded")
			}
			f.driver.Start(t)
			for range 50 {
				if err := f.Prepare(t.Context(), pod); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			f.prepared(t, pod)
			if points, err := mounts.At(f.options.Layout.PodDir(pod.UID)); err != nil || len(points) != 1 {
				t.Errorf("mounted: %v, %v", points, err)
			}
			f.tornDown(t, pod.UID)
			f.nothingLeft(t)
		})
	}
}
