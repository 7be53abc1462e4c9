// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/localvolumes"
)

var ctx = context.Background()

const simulatedLabel = "example.com/simulated"

// bench is a provisioner with an API of its own, and the nodes "here", "there" (another machine), "elsewhere" (one without volumes) and
// "sim-0" (simulated).
type bench struct {
	*controltest.World
	*provisioner
	t *testing.T
	// there is the disk of another machine.
	there localvolumes.Directories
}

func newBench(t *testing.T, objs ...client.Object) bench {
	there := newNode("there")
	there.Annotations = map[string]string{localvolumes.Annotation: "true"}
	objs = append(objs, newNode("here"), newNode("sim-0", simulatedLabel), newNode("elsewhere"), there, newClass())
	b := bench{World: controltest.New(t, objs...), t: t, there: localvolumes.Directories{Root: filepath.Join(t.TempDir(), "there")}}
	b.provisioner = b.begin(Nodes{Real: "here", Root: filepath.Join(t.TempDir(), "volumes"), Simulated: simulatedLabel})
	return b
}

// begin returns the provisioner of a new process.
func (b bench) begin(nodes Nodes) *provisioner {
	return newProvisioner(b.Env(), nodes, func(node string) localvolumes.Disk {
		if node != "there" {
			b.t.Errorf("the disk of %s is used", node)
		}
		return b.there
	})
}

func newNode(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: "host-" + name}}}
	for _, l := range labels {
		n.Labels[l] = ""
	}
	return n
}

func newClass(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: Provisioner,
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func newClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", Annotations: map[string]string{
			volume.AnnStorageProvisioner: Provisioner, volume.AnnSelectedNode: "here",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("local-path"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: gi("1Gi")},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func onNode(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[volume.AnnSelectedNode] = name }
}

func ofBlocks(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

func gi(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
}

func (b bench) reconcile(key client.ObjectKey) error {
	b.Sync()
	_, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	return err
}

// provision reconciles the claim and returns its volume, or nil.
func (b bench) provision() *corev1.PersistentVolume {
	b.t.Helper()
	b.Must(b.reconcile(client.ObjectKey{Namespace: "ns", Name: "data"}))
	return b.volume()
}

func (b bench) volume() *corev1.PersistentVolume {
	b.t.Helper()
	list := &corev1.PersistentVolumeList{}
	b.Must(b.API.List(ctx, list))
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

func (b bench) claim() *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "data"}, claim))
	return claim
}

// bind does what the binder does.
func (b bench) bind(v *corev1.PersistentVolume) {
	b.t.Helper()
	v.Status.Phase = corev1.VolumeBound
	b.Must(b.API.Status().Update(ctx, v))
	claim := b.claim()
	claim.Spec.VolumeName = v.Name
	b.Must(b.API.Update(ctx, claim))
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, v.Spec.Capacity
	b.Must(b.API.Status().Update(ctx, claim))
}

func (b bench) setPhase(phase corev1.PersistentVolumePhase) {
	b.t.Helper()
	v := b.volume()
	v.Status.Phase = phase
	b.Must(b.API.Status().Update(ctx, v))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestProvision(t *testing.T) {
	b := newBench(t, newClaim())
	v := b.provision()
	if v == nil {
		t.Fatalf("no volume: %q", b.Events())
	}
	path := filepath.Join(b.nodes.Root, "pvc-uid-0001")
	want := corev1.PersistentVolumeSpec{
		Capacity: gi("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", UID: "uid-0001", ResourceVersion: b.claim().ResourceVersion},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "local-path",
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"host-here"}}},
		}}}},
	}
	if diff := cmp.Diff(want, v.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for path, mode := range map[string]os.FileMode{b.nodes.Root: 0o700, path: 0o777} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode || !info.IsDir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	events := []string{
		"Normal ProvisioningSucceeded Successfully provisioned volume pvc-uid-0001",
		"Normal CapacityNotEnforced volume pvc-uid-0001 is a directory and may grow beyond 1Gi, as far as the disk of node here allows",
	}
	if diff := cmp.Diff(events, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.provision() // again, after a crash before the claim was bound
	if got := b.Events(); len(got) > 0 {
		t.Errorf("events of the repetition: %q", got)
	}
}

func TestBlockVolumesHaveTheirSize(t *testing.T) {
	b := newBench(t, newClaim(ofBlocks, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = gi("1000001") }))
	v := b.provision()
	info, err := os.Stat(v.Spec.Local.Path)
	if err != nil || info.Size() != 1003520 || info.Mode() != 0o600 {
		t.Errorf("file: %+v, %v", info, err)
	}
	// The file grows with the claim.
	b.bind(v)
	claim := b.claim()
	claim.Spec.Resources.Requests = gi("3Mi")
	b.Must(b.API.Update(ctx, claim))
	b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
	if info, err = os.Stat(v.Spec.Local.Path); err != nil || info.Size() != 3<<20 {
		t.Errorf("file after the expansion: %+v, %v", info, err)
	}
	if got := b.claim().Status.Capacity.Storage().String(); got != "3Mi" || b.volume().Spec.Capacity.Storage().String() != "3Mi" {
		t.Errorf("capacity %s", got)
	}
}

func TestRefusals(t *testing.T) {
	type C = *corev1.PersistentVolumeClaim
	for name, c := range map[string]struct {
		claim C
		class []func(*storagev1.StorageClass)
		want  string
	}{
		"no node":    {newClaim(func(c C) { delete(c.Annotations, volume.AnnSelectedNode) }), nil, "no node is selected; the class must have volumeBindingMode WaitForFirstConsumer"},
		"selector":   {newClaim(func(c C) { c.Spec.Selector = &metav1.LabelSelector{} }), nil, "claim Selector is not supported"},
		"source":     {newClaim(func(c C) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }), nil, "a new volume is empty: dataSource and dataSourceRef are not supported"},
		"attributes": {newClaim(func(c C) { c.Spec.VolumeAttributesClassName = ptr.To("gold") }), nil, "volumeAttributesClassName is not supported"},
		"parameters": {newClaim(), []func(*storagev1.StorageClass){func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"b": "", "a": ""} }}, `unknown parameters of the class: ["a" "b"]`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := check(c.claim, newClass(c.class...)); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestOtherClaimsAreLeftAlone(t *testing.T) {
	type C = *corev1.PersistentVolumeClaim
	for name, claim := range map[string]C{
		"of another provisioner": newClaim(func(c C) { c.Annotations[volume.AnnStorageProvisioner] = "example.com/disk" }),
		"bound":                  newClaim(func(c C) { c.Spec.VolumeName = "v" }),
		"on hold":                newClaim(func(c C) { c.Annotations[ownership.HoldAnnotation] = "" }),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, claim)
			if v := b.provision(); v != nil || exists(b.nodes.Root) || len(b.Events()) > 0 {
				t.Errorf("provisioned %v", v)
			}
		})
	}
}

func TestSimulatedNodesHaveNoDirectories(t *testing.T) {
	b := newBench(t, newClaim(onNode("sim-0")))
	v := b.provision()
	if v == nil || v.Spec.Local.Path != "/simulated/pvc-uid-0001" || exists(b.nodes.Root) {
		t.Fatalf("volume %v, directory %v", v, exists(b.nodes.Root))
	}
	b.setPhase(corev1.VolumeReleased)
	for range 2 {
		b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
	}
	if v := b.volume(); v != nil {
		t.Errorf("not deleted: %v", v)
	}
}

// A node that is gone, or has no room, is given back to the scheduler.
func TestReschedule(t *testing.T) {
	b := newBench(t, newClaim(onNode("gone")))
	b.provision()
	if node, selected := b.claim().Annotations[volume.AnnSelectedNode]; selected {
		t.Errorf("still on %s", node)
	}
	b = newBench(t, newClaim())
	b.Must(os.WriteFile(b.nodes.Root, nil, 0o600)) // no directory can be made in a file
	if v := b.provision(); v != nil {
		t.Errorf("provisioned %v", v)
	}
	if node, selected := b.claim().Annotations[volume.AnnSelectedNode]; selected {
		t.Errorf("still on %s", node)
	}
	if got := b.Events(); len(got) != 1 || !strings.HasPrefix(got[0], `Warning ProvisioningFailed failed to provision volume with StorageClass "local-path": `) {
		t.Errorf("events %q", got)
	}
	b = newBench(t, newClaim(onNode("elsewhere")))
	b.provision()
	if got := b.Events(); len(got) != 1 || !strings.HasSuffix(got[0], `: node elsewhere does not have volumes of this class`) || b.claim().Annotations[volume.AnnSelectedNode] != "" {
		t.Errorf("events %q, %v", got, b.claim().Annotations)
	}
}

func TestReclaim(t *testing.T) {
	key := client.ObjectKey{Name: "pvc-uid-0001"}
	b := newBench(t, newClaim())
	path := b.provision().Spec.Local.Path
	data := filepath.Join(path, "data")
	b.Must(os.WriteFile(data, []byte("x"), 0o600))
	b.setPhase(corev1.VolumeBound)

	// Deleted while bound: the data stays.
	b.Must(b.API.Delete(ctx, b.volume()))
	b.Must(b.reconcile(key))
	if !exists(data) || b.volume() == nil {
		t.Fatal("removed while bound")
	}
	// Bound again before the provisioner acts, as by an undeletion: its view of the volume is stale.
	b = newBench(t, newClaim())
	path = b.provision().Spec.Local.Path
	b.setPhase(corev1.VolumeReleased)
	b.Sync()
	b.setPhase(corev1.VolumeBound)
	if _, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil || b.volume().DeletionTimestamp != nil {
		t.Errorf("error %v, deleted %v", err, b.volume().DeletionTimestamp)
	}
	// Released: first the volume is deleted, then the directory goes, then the finalizer.
	b.setPhase(corev1.VolumeReleased)
	b.Must(b.reconcile(key))
	if b.volume().DeletionTimestamp == nil || !exists(path) {
		t.Errorf("deleted %v, directory exists: %v", b.volume().DeletionTimestamp, exists(path))
	}
	killed := errors.New("killed")
	b.Refuse = func(string, client.Object) error { return killed }
	if err := b.reconcile(key); !errors.Is(err, killed) || b.volume() == nil || exists(path) {
		t.Errorf("error %v, directory exists: %v", err, exists(path))
	}
	b.Refuse = nil
	b.Must(b.reconcile(key))
	if b.volume() != nil {
		t.Error("not removed")
	}
}

// Nothing happens to a held volume, and all that was due happens when the hold ends.
func TestHeldVolumeIsLeftAlone(t *testing.T) {
	b := newBench(t, newClaim())
	v := b.provision()
	key := client.ObjectKeyFromObject(v)
	b.Must(os.WriteFile(filepath.Join(v.Spec.Local.Path, "data"), []byte("x"), 0o600))
	b.setPhase(corev1.VolumeReleased)
	v = b.volume()
	v.Annotations[ownership.HoldAnnotation] = ""
	b.Must(b.API.Update(ctx, v))
	for range 2 {
		b.Must(b.reconcile(key))
	}
	if now := b.volume(); now == nil || now.ResourceVersion != v.ResourceVersion || !exists(filepath.Join(v.Spec.Local.Path, "data")) {
		t.Fatalf("held volume: %+v", now)
	}
	delete(v.Annotations, ownership.HoldAnnotation)
	b.Must(b.API.Update(ctx, v))
	for range 2 {
		b.Must(b.reconcile(key))
	}
	if b.volume() != nil || exists(v.Spec.Local.Path) {
		t.Error("not removed after the hold")
	}
}

// Neither a held volume nor a held claim is expanded.
func TestHeldIsNotExpanded(t *testing.T) {
	for name, held := range map[string]func(bench) client.Object{
		"volume": func(b bench) client.Object { return b.volume() },
		"claim":  func(b bench) client.Object { return b.claim() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newClaim())
			b.bind(b.provision())
			claim := b.claim()
			claim.Spec.Resources.Requests = gi("2Gi")
			b.Must(b.API.Update(ctx, claim))
			object := held(b)
			annotations := object.GetAnnotations()
			annotations[ownership.HoldAnnotation] = ""
			b.Must(b.API.Update(ctx, object))
			b.Must(b.reconcile(client.ObjectKeyFromObject(b.volume())))
			if got, reported := b.volume().Spec.Capacity.Storage(), b.claim().Status.Capacity.Storage(); got.String() != "1Gi" || reported.String() != "1Gi" {
				t.Errorf("capacity %s, reported %s", got, reported)
			}
		})
	}
}

func TestRetainedDataStays(t *testing.T) {
	key := client.ObjectKey{Name: "pvc-uid-0001"}
	b := newBench(t, newClaim())
	v := b.provision()
	path := v.Spec.Local.Path
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	b.Must(b.API.Update(ctx, v))
	b.Must(b.reconcile(key))
	if got := b.volume().Finalizers; len(got) > 0 {
		t.Errorf("finalizers %q of a retained volume", got)
	}
	b.setPhase(corev1.VolumeReleased)
	b.Must(b.reconcile(key))
	if b.volume() == nil {
		t.Fatal("deleted a retained volume")
	}
	b.Must(b.API.Delete(ctx, b.volume()))
	if err := b.reconcile(key); err != nil || !exists(path) {
		t.Errorf("error %v, data exists: %v", err, exists(path))
	}
}

// A PersistentVolume that a user wrote must not make the provisioner remove another directory.
func TestForeignPathsAreNotRemoved(t *testing.T) {
	victim := t.TempDir()
	for name, path := range map[string]string{"outside": victim, "a path that leads outside": "%s/pvc-uid-0001/../..", "another volume": "%s/pvc-other"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newClaim())
			v := b.provision()
			v.Spec.Local.Path = strings.ReplaceAll(path, "%s", b.nodes.Root)
			b.Must(b.API.Update(ctx, v))
			b.setPhase(corev1.VolumeReleased)
			b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
			err := b.reconcile(client.ObjectKeyFromObject(v))
			if err == nil || !strings.Contains(err.Error(), "it was not provisioned there") || !exists(victim) || !exists(b.nodes.Root) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestOtherMachines: volumes of another machine's node are made, expanded and removed on its disk.
func TestOtherMachines(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){"directory": func(*corev1.PersistentVolumeClaim) {}, "block": ofBlocks} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newClaim(onNode("there"), change))
			v := b.provision()
			if v == nil || !strings.HasPrefix(v.Spec.Local.Path, b.there.Root+"/pvc-uid-0001") || !exists(v.Spec.Local.Path) {
				t.Fatalf("%+v", v)
			}
			b.bind(v)
			claim := b.claim()
			claim.Spec.Resources.Requests = gi("2Gi")
			b.Must(b.API.Update(ctx, claim))
			b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
			if got := b.claim().Status.Capacity.Storage(); got.String() != "2Gi" {
				t.Errorf("capacity %s", got)
			}
			b.setPhase(corev1.VolumeReleased)
			for range 2 {
				b.Must(b.reconcile(client.ObjectKeyFromObject(v)))
			}
			if b.volume() != nil || exists(v.Spec.Local.Path) {
				t.Error("not removed")
			}
			if entries, err := os.ReadDir(b.there.Root); err != nil || len(entries) > 0 || exists(b.nodes.Root) {
				t.Errorf("left: %v, %v", entries, err)
			}
		})
	}
}
