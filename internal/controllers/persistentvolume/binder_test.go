// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
)

var ctx = context.Background()

// bench is a binder with an API of its own.
type bench struct {
	*controltest.World
	*binder
	t testing.TB
}

func newBench(t testing.TB, objs ...client.Object) bench {
	w := controltest.New(t, objs...)
	return bench{w, newBinder(w.Env()), t}
}

// restart replaces the binder by a new one, which knows only what the API has.
func (b *bench) restart() { b.binder = newBinder(b.Env()) }

// settle reconciles all claims and volumes until nothing changes any more.
func (b *bench) settle() {
	b.t.Helper()
	b.Sync()
	for range 50 {
		before, killed := b.state(), false
		for _, key := range b.keys() {
			if _, err := b.Reconcile(ctx, ctrl.Request{NamespacedName: key}); errors.Is(err, errKilled) {
				b.restart()
				killed = true
			} else {
				b.Must(err)
			}
			b.Sync()
		}
		if !killed && b.state() == before {
			return
		}
	}
	b.t.Fatalf("not settled:\n%s", b.state())
}

var errKilled = errors.New("the process was killed")

func (b *bench) keys() (keys []types.NamespacedName) {
	for _, c := range b.allClaims() {
		keys = append(keys, client.ObjectKeyFromObject(&c))
	}
	for _, v := range b.all() {
		keys = append(keys, client.ObjectKeyFromObject(&v))
	}
	return keys
}

func (b *bench) allClaims() []corev1.PersistentVolumeClaim {
	list := &corev1.PersistentVolumeClaimList{}
	b.Must(b.API.List(ctx, list))
	return list.Items
}

func (b *bench) all() []corev1.PersistentVolume {
	list := &corev1.PersistentVolumeList{}
	b.Must(b.API.List(ctx, list))
	return list.Items
}

// state describes all bindings.
func (b *bench) state() (s string) {
	for _, c := range b.allClaims() {
		s += fmt.Sprintf("claim %s %s -> %q %v\n", c.Name, c.Status.Phase, c.Spec.VolumeName, c.Annotations)
	}
	for _, v := range b.all() {
		s += fmt.Sprintf("volume %s %s -> ", v.Name, v.Status.Phase)
		if ref := v.Spec.ClaimRef; ref != nil {
			s += fmt.Sprintf("%s %s", ref.Name, ref.UID)
		}
		s += fmt.Sprintf(" %v\n", v.Annotations)
	}
	return s
}

func (b *bench) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, claim))
	return claim
}

func (b *bench) stored(name string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{}
	b.Must(b.API.Get(ctx, client.ObjectKey{Name: name}, v))
	return v
}

func TestBindAndRelease(t *testing.T) {
	b := newBench(t, newClaimOf(), newVolume("v", capacity("2Gi"), phase(""), policy(corev1.PersistentVolumeReclaimRetain)))
	b.settle()
	claim, v := b.claim("data"), b.stored("v")
	if claim.Status.Phase != corev1.ClaimBound || v.Status.Phase != corev1.VolumeBound {
		t.Fatalf("not bound:\n%s", b.state())
	}
	if diff := cmp.Diff(map[string]string{completed: "yes", byController: "yes"}, claim.Annotations); diff != "" {
		t.Errorf("annotations of the claim (-want +got):\n%s", diff)
	}
	if ref := v.Spec.ClaimRef; ref.UID != claim.UID || ref.Kind != "PersistentVolumeClaim" || ref.APIVersion != "v1" || v.Annotations[byController] != "yes" {
		t.Errorf("claimRef %+v, annotations %v", ref, v.Annotations)
	}
	if got := claim.Status.Capacity.Storage().String(); got != "2Gi" || len(claim.Status.AccessModes) != 1 {
		t.Errorf("status of the claim: capacity %s, modes %v", got, claim.Status.AccessModes)
	}
	b.Must(b.API.Delete(ctx, claim))
	b.settle()
	if v := b.stored("v"); v.Status.Phase != corev1.VolumeReleased || v.Spec.ClaimRef.UID != claim.UID {
		t.Errorf("a retained volume: %s", b.state())
	}
	// A new claim of the name does not get the data of the old one.
	b.Must(b.API.Create(ctx, newClaimOf(func(c *corev1.PersistentVolumeClaim) { c.UID = "" })))
	b.settle()
	if claim := b.claim("data"); claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("bound to a released volume: %s", b.state())
	}
	// An administrator makes the volume available again.
	v = b.stored("v")
	v.Spec.ClaimRef = nil
	b.Must(b.API.Update(ctx, v))
	b.settle()
	if claim := b.claim("data"); claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("not bound: %s", b.state())
	}
}

func TestRequestVolume(t *testing.T) {
	b := newBench(t, newClaimOf(class("fast")), newClass("fast", "example.com/disk", storagev1.VolumeBindingImmediate))
	b.settle()
	want := map[string]string{"volume.kubernetes.io/storage-provisioner": "example.com/disk", "volume.beta.kubernetes.io/storage-provisioner": "example.com/disk"}
	claim := b.claim("data")
	if diff := cmp.Diff(want, claim.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	// The provisioner creates the volume, bound.
	b.Must(b.API.Create(ctx, newVolume("pvc-1", refTo("data", string(claim.UID)), ofClass("fast"), phase(""), annotated[*corev1.PersistentVolume](provisionedBy, "example.com/disk"))))
	b.settle()
	if claim := b.claim("data"); claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != "pvc-1" {
		t.Errorf("not bound: %s", b.state())
	}
}

func TestLostClaimIsReportedOnce(t *testing.T) {
	b := newBench(t, newClaimOf(names("gone"), annotated[*corev1.PersistentVolumeClaim](completed, "yes")))
	b.settle()
	b.settle()
	want := []string{"Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!"}
	if diff := cmp.Diff(want, b.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := b.claim("data").Status.Phase; got != corev1.ClaimLost {
		t.Errorf("phase %s", got)
	}
}

func TestHeldClaimIsLeftAlone(t *testing.T) {
	b := newBench(t, newClaimOf(annotated[*corev1.PersistentVolumeClaim](ownership.HoldAnnotation, "")), newVolume("v"))
	b.settle()
	if claim := b.claim("data"); claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("bound while on hold: %s", b.state())
	}
}

var held = annotated[*corev1.PersistentVolume](ownership.HoldAnnotation, "")

// release ends the hold of a volume.
func (b *bench) release(name string) {
	v := b.stored(name)
	delete(v.Annotations, ownership.HoldAnnotation)
	b.Must(b.API.Update(ctx, v))
	b.settle()
}

func TestHeldVolumeIsNotReleased(t *testing.T) {
	b := newBench(t, newVolume("v", refTo("data", "gone"), phase(corev1.VolumeBound), policy(corev1.PersistentVolumeReclaimRetain), held))
	b.settle()
	if v := b.stored("v"); v.Status.Phase != corev1.VolumeBound {
		t.Errorf("released while on hold: %s", b.state())
	}
	b.release("v")
	if v := b.stored("v"); v.Status.Phase != corev1.VolumeReleased {
		t.Errorf("not released after the hold: %s", b.state())
	}
}

// A claim that no held volume names is bound to another volume, or waits.
func TestHeldVolumeIsNotBound(t *testing.T) {
	b := newBench(t, newClaimOf(), newVolume("held", held))
	b.settle()
	if v := b.stored("held"); v.Spec.ClaimRef != nil || b.claim("data").Status.Phase != corev1.ClaimPending {
		t.Fatalf("bound while on hold: %s", b.state())
	}
	b.Must(b.API.Create(ctx, newVolume("other", capacity("5Gi"))))
	b.settle()
	if claim := b.claim("data"); claim.Spec.VolumeName != "other" {
		t.Errorf("not bound: %s", b.state())
	}
}

// A claim waits for a held volume that names it or that it names: another volume does not have its data.
func TestClaimWaitsForItsHeldVolume(t *testing.T) {
	naming := func(uid string) *corev1.PersistentVolume { return newVolume("held", held, refTo("data", uid)) }
	for name, test := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		volume *corev1.PersistentVolume
	}{
		"the volume names the claim":           {newClaimOf(), naming("")},
		"the volume names the claim's UID":     {newClaimOf(), naming("uid-0001")},
		"the claim names the volume":           {newClaimOf(names("held")), newVolume("held", held)},
		"the claim was bound to the volume":    {newClaimOf(names("held"), annotated[*corev1.PersistentVolumeClaim](completed, "yes")), newVolume("held", held)},
		"both name the other, not bound yet":   {newClaimOf(names("held")), naming("uid-0001")},
		"the volume has no phase, as restored": {newClaimOf(names("held")), newVolume("held", held, refTo("data", "uid-0001"), phase(""))},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.claim, newVolume("other"), test.volume)
			before := b.stored("held").ResourceVersion
			b.settle()
			if got := b.claim("data"); got.Status.Phase == corev1.ClaimBound || got.Spec.VolumeName == "other" {
				t.Errorf("bound while on hold: %s", b.state())
			}
			if b.stored("held").ResourceVersion != before {
				t.Errorf("the held volume was written: %s", b.state())
			}
			b.release("held")
			if claim := b.claim("data"); claim.Spec.VolumeName != "held" || claim.Status.Phase != corev1.ClaimBound {
				t.Errorf("not bound after the hold: %s", b.state())
			}
		})
	}
}

// The claim of a held volume stays bound.
func TestClaimOfHeldVolumeStaysBound(t *testing.T) {
	b := newBench(t, newClaimOf(), newVolume("v"))
	b.settle()
	v := b.stored("v")
	v.Annotations[ownership.HoldAnnotation] = ""
	b.Must(b.API.Update(ctx, v))
	before := b.state()
	b.restart()
	b.settle()
	if diff := cmp.Diff(before, b.state()); diff != "" || b.claim("data").Status.Phase != corev1.ClaimBound {
		t.Errorf("changed by the hold:\n%s", diff)
	}
}

// TestBindingsAreExclusive binds random claims to random volumes while the process is killed before
// random writes and others delete claims and volumes. No volume is ever the volume of two claims, and in the end
// every claim that a free volume fits is bound.
func TestBindingsAreExclusive(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t, newClass("delayed", "example.com/disk", storagev1.VolumeBindingWaitForFirstConsumer))
			b.Refuse = func(string, client.Object) error {
				b.checkExclusive()
				if random.IntN(4) == 0 {
					return errKilled
				}
				return nil
			}
			for i := range 12 {
				b.change(random, i)
				b.settle()
			}
			b.checkExclusive()
			b.checkComplete()
		})
	}
}

// change creates or deletes a random claim or volume.
func (b *bench) change(random *rand.Rand, i int) {
	sizes := []string{"1Gi", "2Gi", "3Gi"}
	switch random.IntN(5) {
	case 0, 1:
		b.Must(b.API.Create(ctx, newClaimOf(class(""), func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.UID = fmt.Sprint("claim-", i), ""
			c.Spec.Resources.Requests = size(sizes[random.IntN(3)])
			if random.IntN(4) == 0 {
				c.Spec.VolumeName = fmt.Sprint("volume-", random.IntN(12))
			}
		})))
	case 2, 3:
		b.Must(b.API.Create(ctx, newVolume(fmt.Sprint("volume-", i), capacity(sizes[random.IntN(3)]), phase(""), policy(corev1.PersistentVolumeReclaimRetain), func(v *corev1.PersistentVolume) {
			v.UID = ""
			if random.IntN(4) == 0 {
				refTo(fmt.Sprint("claim-", random.IntN(12)), "")(v)
			}
		})))
	case 4:
		if all := b.allClaims(); len(all) > 0 && random.IntN(2) == 0 {
			b.Must(b.API.Delete(ctx, &all[random.IntN(len(all))]))
		} else if all := b.all(); len(all) > 0 {
			b.Must(b.API.Delete(ctx, &all[random.IntN(len(all))]))
		}
	}
}

// checkExclusive fails if two bound claims have one volume, or a bound claim's volume names another claim.
func (b *bench) checkExclusive() {
	users := map[string]string{}
	for _, c := range b.allClaims() {
		if c.Status.Phase != corev1.ClaimBound {
			continue
		}
		if other, taken := users[c.Spec.VolumeName]; taken {
			b.t.Errorf("claims %s and %s are bound to %s", other, c.Name, c.Spec.VolumeName)
		}
		users[c.Spec.VolumeName] = c.Name
		for _, v := range b.all() {
			if v.Name == c.Spec.VolumeName && (v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID) {
				b.t.Errorf("claim %s is bound to %s, which names %v", c.Name, v.Name, v.Spec.ClaimRef)
			}
		}
	}
}

// checkComplete fails if a claim waits though an available volume fits.
func (b *bench) checkComplete() {
	for _, c := range b.allClaims() {
		if c.Status.Phase != corev1.ClaimPending || c.Spec.VolumeName != "" {
			continue
		}
		fits := func(v corev1.PersistentVolume) bool {
			return v.Status.Phase == corev1.VolumeAvailable && v.Spec.ClaimRef == nil && v.Spec.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) >= 0
		}
		if slices.ContainsFunc(b.all(), fits) {
			b.t.Errorf("claim %s waits though a volume fits:\n%s", c.Name, b.state())
		}
	}
}

func TestEphemeralClaims(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid-pod"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "other"},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: newClaimOf().Spec,
			}}}},
		}},
	}
	w := controltest.New(t, pod)
	e := &ephemeralClaims{client: w.Env().Client, events: w.Env().Events}
	reconcile := func() error {
		_, err := e.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		w.Sync()
		return err
	}
	w.Must(reconcile())
	claim, key := &corev1.PersistentVolumeClaim{}, client.ObjectKey{Namespace: "ns", Name: "pod-scratch"}
	w.Must(w.API.Get(ctx, key, claim))
	if owner := metav1.GetControllerOf(claim); owner == nil || owner.Name != "pod" || claim.Labels["a"] != "b" {
		t.Errorf("owner %v, labels %v", owner, claim.Labels)
	}
	w.Must(reconcile())
	// A claim that belongs to another pod is not used.
	w.Must(w.API.Delete(ctx, claim))
	w.Must(w.API.Create(ctx, newClaimOf(func(c *corev1.PersistentVolumeClaim) { c.Name = "pod-scratch" })))
	w.Sync()
	if err := reconcile(); err == nil {
		t.Error("no error for a claim that is not the pod's")
	}
	want := []string{"Warning FailedBinding ephemeral volume scratch: PVC ns/pod-scratch was not created for pod ns/pod (pod is not owner)"}
	if diff := cmp.Diff(want, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
