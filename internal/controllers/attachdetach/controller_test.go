// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var (
	ctx     = context.Background()
	request = ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "csi.example.com", Name: "handle"}}
)

const onNodes corev1.UniqueVolumeName = "kubernetes.io/csi/csi.example.com^handle"

// bench is a controller with an API of its own: a volume, its claim, and two nodes.
type bench struct {
	*controltest.World
	*reconciler
	t *testing.T
}

func newBench(t *testing.T, objs ...client.Object) *bench {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "v"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "handle"}},
		},
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"}}
	w := controltest.New(t, append(objs, v, claim, newNode("a"), newNode("b"))...)
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: claim.UID}
	w.Must(w.API.Update(ctx, v))
	w.Must(addIndexes(ctx, indexer{w}))
	return &bench{w, newReconciler(w.Env()), t}
}

// indexer adds indexes to the cache of a World.
type indexer struct{ *controltest.World }

func (i indexer) IndexField(_ context.Context, kind client.Object, field string, values client.IndexerFunc) error {
	i.Index(kind, field, values)
	return nil
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}}}
}

// reconcile syncs the cache and takes one step.
func (b *bench) reconcile() time.Duration {
	b.t.Helper()
	b.Sync()
	return b.step()
}

func (b *bench) step() time.Duration {
	b.t.Helper()
	result, err := b.Reconcile(ctx, request)
	b.Must(err)
	return result.RequeueAfter
}

// attached lets a pod use the volume on a node, until the cache knows that the node lists it.
func (b *bench) attached(node string) {
	b.t.Helper()
	b.Must(b.API.Create(ctx, newPod("on-"+node, node)))
	b.reconcile()
	b.drive()
	b.reconcile()
	b.Sync()
	if !b.lists(node) {
		b.t.Fatalf("%s does not list the volume", node)
	}
}

// nodes returns where the volume is attached or being detached.
func (b *bench) nodes() (names []string) {
	for _, a := range b.attachments() {
		if a.DeletionTimestamp != nil {
			a.Spec.NodeName += " (deleting)"
		}
		names = append(names, a.Spec.NodeName)
	}
	return names
}

func (b *bench) attachments() []storagev1.VolumeAttachment {
	list := &storagev1.VolumeAttachmentList{}
	b.Must(b.API.List(ctx, list))
	return list.Items
}

// drive does what the external-attacher does: it attaches and detaches.
func (b *bench) drive() {
	for _, a := range b.attachments() {
		switch {
		case a.DeletionTimestamp != nil:
			a.Finalizers = nil
			b.Must(b.API.Update(ctx, &a))
		case !a.Status.Attached:
			a.Finalizers = []string{"external-attacher/csi-example-com"}
			b.Must(b.API.Update(ctx, &a))
			a.Status.Attached = true
			b.Must(b.API.Status().Update(ctx, &a))
		}
	}
}

func (b *bench) node(name string) *corev1.Node {
	node := &corev1.Node{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Name: name}, node))
	return node
}

func (b *bench) lists(name string) bool {
	return slices.ContainsFunc(b.node(name).Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == onNodes })
}

// kubelet uses the volume on a node if it is listed there and a pod needs it, and else not.
func (b *bench) kubelet(name string) {
	node := b.node(name)
	node.Status.VolumesInUse = nil
	list := &corev1.PodList{}
	b.Must(b.API.List(ctx, list))
	if b.lists(name) && slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == name }) {
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{onNodes}
	}
	b.Must(b.API.Status().Update(ctx, node))
}

func TestAttachAndDetach(t *testing.T) {
	b := newBench(t)
	b.Must(b.API.Create(ctx, newPod("p", "a")))
	b.reconcile()
	all := b.attachments()
	want := storagev1.VolumeAttachmentSpec{Attacher: "csi.example.com", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")}}
	if len(all) != 1 || cmp.Diff(want, all[0].Spec) != "" || all[0].Name != "csi-d28858cfebc0148a36789349fc6521491b6edae5925b8a24f2877fa27754aa6c" {
		t.Errorf("attachments %+v", all)
	}
	if b.reconcile(); b.lists("a") {
		t.Error("listed before it was attached")
	}
	b.drive()
	b.reconcile()
	if !b.lists("a") {
		t.Fatal("not listed")
	}
	if diff := cmp.Diff([]string{`Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v" `}, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.kubelet("a")
	b.Must(b.API.Delete(ctx, newPod("p", "a")))
	b.Must(b.API.Create(ctx, newPod("q", "b")))
	for range 2 {
		b.reconcile()
	}
	if all := b.attachments(); len(all) != 1 || !b.lists("a") {
		t.Errorf("detached while in use: %+v", all)
	}
	if diff := cmp.Diff([]string{`Warning FailedAttachVolume Waiting for detach for volume "v" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node`}, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.kubelet("a")
	b.reconcile()
	if all := b.attachments(); len(all) != 1 || all[0].DeletionTimestamp == nil || b.lists("a") {
		t.Errorf("not detached: %+v, listed %v", all, b.lists("a"))
	}
	b.drive()
	b.reconcile()
	if all := b.attachments(); len(all) != 1 || all[0].Spec.NodeName != "b" {
		t.Errorf("not attached: %+v", all)
	}
}

func TestWithoutAttachment(t *testing.T) {
	b := newBench(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}, newPod("p", "a"))
	if b.reconcile(); len(b.attachments()) > 0 {
		t.Error("attached though the driver does not need it")
	}
}

func TestLostNode(t *testing.T) {
	b := newBench(t, newPod("p", "a"))
	for range 2 {
		b.reconcile()
		b.drive()
	}
	b.reconcile()
	b.kubelet("a")
	b.Must(b.API.Delete(ctx, newPod("p", "a")))
	b.Must(b.API.Delete(ctx, newNode("a")))
	if after := b.reconcile(); after != unmountLimit+time.Second || b.attachments()[0].DeletionTimestamp != nil {
		t.Errorf("after %v, attachments %+v", after, b.attachments())
	}
	b.Clock.Step(unmountLimit + time.Second)
	if b.reconcile(); b.attachments()[0].DeletionTimestamp == nil {
		t.Error("not detached")
	}
}

// Attachments that others made are left alone.
func TestForeignAttachments(t *testing.T) {
	b := newBench(t, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "csi.example.com", NodeName: "a", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")},
	}})
	if b.reconcile(); len(b.attachments()) != 1 {
		t.Error("deleted")
	}
}

// A place forgets its former attachment.
func TestAttachAgain(t *testing.T) {
	b := newBench(t)
	b.attached("a")
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.reconcile()
	b.Must(b.API.Create(ctx, newPod("on-a", "a")))
	for range 3 {
		b.reconcile()
		b.drive()
	}
	if b.reconcile(); !b.lists("a") || !slices.Equal(b.nodes(), []string{"a"}) {
		t.Errorf("listed %v, attached to %v", b.lists("a"), b.nodes())
	}
}

// TestWatches: each change leads to the next step.
func TestWatches(t *testing.T) {
	b := newBench(t)
	b.Run(t, control.Controller{Name: Name, Add: Add})
	eventually := func(what string, done func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
			t.Fatalf("not %s: attached to %v", what, b.nodes())
		}
	}
	b.Must(b.API.Create(ctx, newPod("on-a", "a")))
	eventually("attached", func() bool { return len(b.nodes()) == 1 })
	b.drive()
	eventually("listed", func() bool { return b.lists("a") })
	b.kubelet("a")
	b.Must(b.API.Delete(ctx, newPod("on-a", "a")))
	b.Must(b.API.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}))
	b.kubelet("a")
	eventually("detached", func() bool { return slices.Equal(b.nodes(), []string{"a (deleting)"}) && !b.lists("a") })
}

// TestNeverInUseTwice: pods come and go on two nodes, through two PersistentVolumes, the driver and the nodes
// act at random times, each kind of the cache is stale for a random time, and the process is killed before or
// after random writes. The volume is never attached to both nodes, and no node uses a volume that is not attached to it.
func TestNeverInUseTwice(t *testing.T) {
	killed, lost := errors.New("killed"), errors.New("the answer is lost")
	kinds := []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &storagev1.VolumeAttachmentList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}}
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			b := newBench(t)
			b.second("a", corev1.ReadWriteOnce)
			b.Refuse = func(verb string, obj client.Object) error {
				switch random.IntN(20) {
				case 0:
					return killed
				case 1:
					if verb == "create" {
						b.Must(client.IgnoreAlreadyExists(b.API.Create(ctx, obj.DeepCopyObject().(client.Object))))
					}
					return lost
				}
				return nil
			}
			for i := range 400 {
				node := []string{"a", "b"}[random.IntN(2)]
				pod := newPod("on-"+node, node)
				if random.IntN(2) == 0 {
					pod = newPod("second", node)
					pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "second"
				}
				switch random.IntN(9) {
				case 0:
					_ = b.API.Create(ctx, pod)
				case 1:
					_ = b.API.Delete(ctx, pod)
				case 2:
					b.drive()
				case 3:
					b.kubelet(node)
				case 4, 5:
					b.Sync(kinds[random.IntN(len(kinds))])
				default:
					switch _, err := b.Reconcile(ctx, request); {
					case errors.Is(err, killed):
						b.reconciler = newReconciler(b.Env())
						b.Sync() // a new process begins with a new cache
					case !errors.Is(err, lost):
						b.Must(err)
					}
				}
				b.check(i)
			}
		})
	}
}

func (b *bench) check(i int) {
	b.t.Helper()
	on := map[string]bool{} // false while being detached
	for _, a := range b.attachments() {
		on[a.Spec.NodeName] = a.DeletionTimestamp == nil
	}
	if len(on) > 1 {
		b.t.Fatalf("step %d: attached to %v", i, on)
	}
	for _, name := range []string{"a", "b"} {
		if len(b.node(name).Status.VolumesInUse) > 0 && !on[name] {
			b.t.Fatalf("step %d: %s uses the volume, which is attached to %v", i, name, on)
		}
	}
}
