// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/node/csi/csitest"
	"github.com/kindred-project/kindred/internal/node/rootdir"
)

// world is a manager with a driver and a fake API.
type world struct {
	*Manager
	t       *testing.T
	driver  *csitest.Driver
	client  *fake.Clientset
	clock   *clocktesting.FakeClock
	drivers cache.Indexer
	current *v1.Node
}

func newWorld(t *testing.T) *world {
	t.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid", Labels: map[string]string{"zone": "a"}}}
	w := &world{
		t: t, driver: csitest.New(t, "d"), client: fake.NewClientset(node), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
		drivers: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), current: node,
	}
	w.Manager = New(Options{
		Layout: rootdir.Layout{Root: t.TempDir()}, Client: w.client, Node: func() *v1.Node { return w.current }, Clock: w.clock,
		Drivers: storagelisters.NewCSIDriverLister(w.drivers), Synced: func() bool { return true },
	})
	return w
}

func (w *world) register() error {
	return w.Register(w.t.Context(), "d", w.driver.Endpoint, []string{"1.0.0"})
}

func (w *world) csiNode() *storagev1.CSINode {
	w.t.Helper()
	object, err := w.client.StorageV1().CSINodes().Get(w.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

func (w *world) node() *v1.Node {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

func infoWith(max int64, topology map[string]string) *csi.NodeGetInfoResponse {
	return &csi.NodeGetInfoResponse{NodeId: "id", MaxVolumesPerNode: max, AccessibleTopology: &csi.Topology{Segments: topology}}
}

func TestRegister(t *testing.T) {
	w := newWorld(t)
	w.driver.SetInfo(infoWith(5, map[string]string{"zone": "a", "rack": "7"}))
	if err := w.register(); err != nil {
		t.Fatal(err)
	}
	object := w.csiNode()
	want := []storagev1.CSINodeDriver{{
		Name: "d", NodeID: "id", TopologyKeys: []string{"rack", "zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(int32(5))},
	}}
	if diff := cmp.Diff(want, object.Spec.Drivers); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-uid"}}
	if diff := cmp.Diff(owner, object.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	node := w.node()
	if node.Annotations[nodeIDAnnotation] != `{"d":"id"}` || node.Labels["rack"] != "7" {
		t.Errorf("annotations %v, labels %v", node.Annotations, node.Labels)
	}

	w.Deregister(t.Context(), "d", "another endpoint")
	if len(w.csiNode().Spec.Drivers) != 1 {
		t.Error("a driver with another endpoint was removed")
	}
	w.Deregister(t.Context(), "d", w.driver.Endpoint)
	if drivers := w.csiNode().Spec.Drivers; len(drivers) > 0 {
		t.Errorf("drivers %v", drivers)
	}
	if annotation, ok := w.node().Annotations[nodeIDAnnotation]; ok {
		t.Errorf("annotation %s", annotation)
	}
}

func TestRegisterRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"another zone", func(w *world) { w.driver.SetInfo(infoWith(0, map[string]string{"zone": "b"})) },
			`error updating Node object with CSI driver node info: detected topology value collision: driver reported "zone":"b" but existing label is "zone":"a"`},
		{"no ID", func(w *world) { w.driver.SetInfo(&csi.NodeGetInfoResponse{}) }, "error adding CSI driver node info: driverNodeID must not be empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			if err := w.register(); err == nil || err.Error() != tt.want {
				t.Errorf("got %v", err)
			}
			if _, err := w.Manager.drivers.get("d"); err == nil {
				t.Error("the driver is registered")
			}
		})
	}
	w := newWorld(t)
	if err := w.register(); err != nil {
		t.Fatal(err)
	}
	for versions, want := range map[string]string{"": "supports no version", "2.0.0": "is supported", "1.0.0": "already registered"} {
		err := w.Validate("d", "/other.sock", strings.Fields(versions))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("versions %q: %v", versions, err)
		}
	}
	if err := w.Validate("d", w.driver.Endpoint, []string{"1.0.0"}); err != nil {
		t.Errorf("the same driver again: %v", err)
	}
}

// TestCSINodeOfAnotherNode: the CSINode of a Node that was replaced is replaced as well.
func TestCSINodeOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	old := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "old", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: "old-node"}}},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "old", NodeID: "x"}}},
	}
	if err := w.client.Tracker().Add(old); err != nil {
		t.Fatal(err)
	}
	w.ensure(t.Context())
	object := w.csiNode()
	if !isOwnedBy(object, "node-uid") || len(object.Spec.Drivers) > 0 {
		t.Errorf("CSINode %+v", object)
	}
}

// TestReplacedNode: a Node that is deleted and registered again gets its drivers back.
func TestReplacedNode(t *testing.T) {
	w := newWorld(t)
	if err := w.register(); err != nil {
		t.Fatal(err)
	}
	if got := w.reinstall(t.Context(), "node-uid"); got != "node-uid" {
		t.Errorf("the same node is %s", got)
	}
	if err := w.client.StorageV1().CSINodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.current = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new"}}
	if err := w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), w.current.DeepCopy(), ""); err != nil {
		t.Fatal(err)
	}
	if got := w.reinstall(t.Context(), "node-uid"); got != "new" {
		t.Errorf("published for %s", got)
	}
	if object := w.csiNode(); !isOwnedBy(object, "new") || len(object.Spec.Drivers) != 1 {
		t.Errorf("CSINode %+v", object)
	}
	if annotation := w.node().Annotations[nodeIDAnnotation]; annotation != `{"d":"node-id"}` {
		t.Errorf("annotation %q", annotation)
	}
}

// TestCountIsUpdated: the number of volumes is read again in the period that the CSIDriver has.
func TestCountIsUpdated(t *testing.T) {
	w := newWorld(t)
	w.driver.SetInfo(infoWith(5, nil))
	if err := w.register(); err != nil {
		t.Fatal(err)
	}
	if err := w.drivers.Add(&storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: ptr.To(int64(60))},
	}); err != nil {
		t.Fatal(err)
	}
	w.driver.SetInfo(infoWith(3, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updated := map[string]time.Time{}
	for _, step := range []struct {
		pass time.Duration
		want int32
	}{{0, 5}, {30 * time.Second, 5}, {30 * time.Second, 3}} {
		w.clock.Step(step.pass)
		w.updateCounts(ctx, updated)
		if got := *w.csiNode().Spec.Drivers[0].Allocatable.Count; got != step.want {
			t.Errorf("after %v: %d, want %d", step.pass, got, step.want)
		}
	}
}

func TestAccessModes(t *testing.T) {
	for _, tt := range []struct {
		mode        v1.PersistentVolumeAccessMode
		distinguish bool
		want        csi.VolumeCapability_AccessMode_Mode
	}{
		{v1.ReadWriteOnce, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOncePod, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOnce, true, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{v1.ReadWriteOncePod, true, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{v1.ReadOnlyMany, true, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{v1.ReadWriteMany, false, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		{"Other", false, csi.VolumeCapability_AccessMode_UNKNOWN},
	} {
		if got := accessMode(tt.mode, tt.distinguish); got != tt.want {
			t.Errorf("%s, %t: %s, want %s", tt.mode, tt.distinguish, got, tt.want)
		}
	}
}

func TestWantsGroup(t *testing.T) {
	once, many := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	for _, tt := range []struct {
		policy   storagev1.FSGroupPolicy
		fsType   string
		modes    []v1.PersistentVolumeAccessMode
		readOnly bool
		want     bool
	}{
		{storagev1.NoneFSGroupPolicy, "ext4", once, false, false},
		{storagev1.FileFSGroupPolicy, "", many, false, true},
		{storagev1.FileFSGroupPolicy, "", many, true, false},
		{storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", once, false, true},
		{storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "", once, false, false},
		{storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", many, false, false},
	} {
		v := &Volume{
			Pod:      &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: ptr.To(int64(1))}}},
			ReadOnly: tt.readOnly,
			PV: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
				AccessModes: tt.modes, PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{FSType: tt.fsType}},
			}},
		}
		if got := v.wantsGroup(tt.policy); got != tt.want {
			t.Errorf("%+v: got %t", tt, got)
		}
	}
}
