// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// storage is the part of the world that has the API's claims and volumes, and stands for the
// volume binder and the provisioner.
type storage struct {
	classes map[string]*storagev1.StorageClass
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	// reserving has the placed pods that are not being bound yet.
	reserving map[string]*decision
	version   int
	// share is how many percent of the steps, and of the pods, are about storage.
	share int
}

func newStorage() storage {
	return storage{
		classes: map[string]*storagev1.StorageClass{}, claims: map[string]*v1.PersistentVolumeClaim{},
		volumes: map[string]*v1.PersistentVolume{}, reserving: map[string]*decision{},
	}
}

// TestRandomWalkOfVolumes checks, beyond TestRandomWalk, that no volume is given to two claims, and
// that a pod is bound only where its volumes are. Writes fail, the binder and the provisioner
// act late or fail, and the scheduler is restarted.
func TestRandomWalkOfVolumes(t *testing.T) {
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			w.share = 60
			for i := range 6 {
				w.putNode(w.randomNode(fmt.Sprint("n", i)))
			}
			for _, class := range []string{static, dynamic, early} {
				w.addClass(class)
			}
			for range 200 {
				w.step()
				w.settle()
				w.waitOutBackoff()
				w.check()
			}
		})
	}
}

// The classes of the world: volumes that exist, volumes that are created, and immediate binding.
const (
	static  = "static"
	dynamic = "dynamic"
	early   = "early"
)

func (w *world) addClass(name string) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Provisioner: volume.NotSupportedProvisioner}
	class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	if name == dynamic {
		class.Provisioner = "p"
	}
	if name == early {
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
	}
	w.classes[name] = class
	w.setClass(class)
}

// number gives an object its next version, as the API does.
func (w *world) number(object metav1.Object) {
	w.version++
	object.SetResourceVersion(strconv.Itoa(w.version))
}

func (w *world) putClaim(claim *v1.PersistentVolumeClaim) {
	w.number(claim)
	w.claims[claim.Name] = claim
	w.setClaim(claim)
}

func (w *world) putVolume(object *v1.PersistentVolume) {
	w.number(object)
	w.volumes[object.Name] = object
	w.setVolume(object)
}

func (w *world) newClaim(name string) *v1.PersistentVolumeClaim {
	w.made++
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(fmt.Sprint(name, w.made))},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(w.pick(dynamic, early)),
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		},
	}
	if isStatic(name) {
		claim.Spec.StorageClassName = ptr.To(static)
	}
	if w.chance(25) {
		claim.Spec.AccessModes[0] = v1.ReadWriteOncePod
	}
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(w.pick("1", "2"))}
	return claim
}

func (w *world) newVolume(class, node string) *v1.PersistentVolume {
	w.made++
	name := fmt.Sprint("v", w.made)
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PersistentVolumeSpec{
			StorageClassName: class,
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOncePod},
			Capacity:         v1.ResourceList{v1.ResourceStorage: resource.MustParse(w.pick("1", "2"))},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
}

// addClaims lets a pod use one or two claims, which may not exist.
func (w *world) addClaims(p *v1.Pod) {
	for range 1 + w.random.IntN(2) {
		source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", w.random.IntN(8))}}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", len(p.Spec.Volumes)), VolumeSource: source})
	}
	// Whether two claims get two of the existing volumes depends on more than the model knows.
	if len(p.Spec.Volumes) == 2 && w.mayCompete(claimsOf(p)) {
		p.Spec.Volumes = p.Spec.Volumes[:1]
	}
}

// mayCompete reports whether claims are, or may be created as, claims of the class with existing
// volumes. The names of those claims are even.
func (w *world) mayCompete(names []string) bool {
	return isStatic(names[0]) && isStatic(names[1]) && names[0] != names[1]
}

func isStatic(claim string) bool { return int(claim[1])%2 == 0 }

// stepStorage makes a random change of claims, volumes or reservations.
func (w *world) stepStorage() {
	switch w.random.IntN(12) {
	case 0, 1:
		name := fmt.Sprint("c", w.random.IntN(8))
		if w.claims[name] == nil {
			w.putClaim(w.newClaim(name))
		}
	case 2:
		w.putVolume(w.newVolume(static, fmt.Sprint("n", w.random.IntN(6))))
	case 3:
		if claim := anyOf(w.random, w.claims); claim != nil && w.users(claim.Name) == 0 {
			delete(w.claims, claim.Name)
			w.removeClaim(claim)
		}
	case 4:
		if object := anyOf(w.random, w.volumes); object != nil && object.Spec.ClaimRef == nil && w.chance(30) {
			delete(w.volumes, object.Name)
			w.removeVolume(object)
		}
	case 5:
		// A change by another client, with which a write of the scheduler conflicts.
		if object := anyOf(w.random, w.volumes); object != nil {
			w.putVolume(object.DeepCopy())
		}
	case 6:
		w.addClass(w.pick(static, dynamic, early))
	case 7:
		if w.chance(20) {
			w.restart()
		}
	case 8:
		w.bindEarly()
	case 9, 10:
		w.settleReservation()
	default:
		w.bindClaims()
	}
}

func (w *world) users(claim string) int {
	count := 0
	for _, p := range w.pods {
		if slices.Contains(claimsOf(p), claim) {
			count++
		}
	}
	return count
}

func claimsOf(p *v1.Pod) []string {
	var names []string
	for _, v := range p.Spec.Volumes {
		names = append(names, v.PersistentVolumeClaim.ClaimName)
	}
	return names
}

// settleReservation lets the API take what the scheduler writes for a pod, or a part of it.
func (w *world) settleReservation() {
	d := anyOf(w.random, w.reserving)
	if d == nil || w.binding[d.pod.UID].written {
		return
	}
	var objects written
	var failed error
	write := func(object any, err error) {
		if failed = err; err == nil {
			objects = append(objects, object)
		}
	}
	for _, match := range d.reservation.Volumes.Bind {
		if match.Write && failed == nil {
			write(w.writeVolume(match))
		}
	}
	for _, provision := range d.reservation.Volumes.Provision {
		if provision.Write && failed == nil {
			write(w.writeClaim(provision.Claim, d.node))
		}
	}
	if failed == nil && w.chance(10) {
		failed = errors.New("timeout")
	}
	if failed != nil {
		delete(w.reserving, d.pod.Name)
	}
	w.reserved(d.pod.UID, objects, failed)
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.PersistentVolume:
			w.setVolume(object)
		case *v1.PersistentVolumeClaim:
			w.setClaim(object)
		}
	}
	w.settle()
}

// writeVolume does what Scheduler.bindVolume and the API do.
func (w *world) writeVolume(match model.Match) (*v1.PersistentVolume, error) {
	now := w.volumes[match.Volume.Name]
	switch {
	case now == nil || w.chance(10):
		return nil, errors.New("not found")
	case now.ResourceVersion != match.Volume.ResourceVersion:
		if now.Spec.ClaimRef != nil && now.Spec.ClaimRef.UID == match.Claim.UID {
			return now, nil
		}
		return nil, errors.New("conflict")
	case now.Spec.ClaimRef != nil && now.Spec.ClaimRef.UID != match.Claim.UID:
		w.t.Fatalf("%s, of claim %s, is given to %s", now.Name, now.Spec.ClaimRef.Name, match.Claim.Name)
	}
	object := match.Volume.DeepCopy()
	w.number(object)
	w.volumes[object.Name] = object
	return object, nil
}

// writeClaim does what Scheduler.selectNode and the API do.
func (w *world) writeClaim(planned *v1.PersistentVolumeClaim, node string) (*v1.PersistentVolumeClaim, error) {
	now := w.claims[planned.Name]
	switch {
	case now == nil || w.chance(10):
		return nil, errors.New("not found")
	case now.ResourceVersion != planned.ResourceVersion:
		if now.UID == planned.UID && now.Annotations[volume.AnnSelectedNode] == node {
			return now, nil
		}
		return nil, errors.New("conflict")
	}
	claim := planned.DeepCopy()
	w.number(claim)
	w.claims[claim.Name] = claim
	return claim, nil
}

// bindClaims does the work of the volume binder and the provisioner, which sometimes fails.
func (w *world) bindClaims() {
	for _, object := range sorted(w.volumes) {
		if ref := object.Spec.ClaimRef; ref != nil {
			if claim := w.claims[ref.Name]; claim != nil && claim.UID == ref.UID && claim.Spec.VolumeName == "" {
				w.bindTo(claim, object)
			}
		}
	}
	for _, claim := range sorted(w.claims) {
		node := claim.Annotations[volume.AnnSelectedNode]
		switch {
		case node == "" || claim.Spec.VolumeName != "":
		case w.chance(20):
			unselected := claim.DeepCopy()
			unselected.Annotations = map[string]string{}
			w.putClaim(unselected)
			w.settle()
		default:
			object := w.newVolume(dynamic, node)
			object.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: claim.Name, UID: claim.UID}
			w.bindTo(claim, object)
		}
	}
}

// bindEarly binds a claim of the class with immediate binding.
func (w *world) bindEarly() {
	claim := anyOf(w.random, w.claims)
	if claim == nil || *claim.Spec.StorageClassName != early || claim.Spec.VolumeName != "" {
		return
	}
	object := w.newVolume(early, fmt.Sprint("n", w.random.IntN(6)))
	object.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: claim.Name, UID: claim.UID}
	w.bindTo(claim, object)
}

func (w *world) bindTo(claim *v1.PersistentVolumeClaim, object *v1.PersistentVolume) {
	object = object.DeepCopy()
	object.Status.Phase = v1.VolumeBound
	w.putVolume(object)
	bound := claim.DeepCopy()
	bound.Spec.VolumeName = object.Name
	metav1.SetMetaDataAnnotation(&bound.ObjectMeta, volume.AnnBindCompleted, "yes")
	w.putClaim(bound)
	w.settle()
}

func sorted[T any](m map[string]*T) []*T {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []*T
	for _, name := range names {
		all = append(all, m[name])
	}
	return all
}

// restart replaces the scheduler by one that knows only the API's objects.
func (w *world) restart() {
	clock := w.clock
	w.bench = newBench()
	w.bench.clock.SetTime(clock.Now())
	w.reserving, w.placed = map[string]*decision{}, map[string]string{}
	for _, n := range sorted(w.nodes) {
		w.setNode(n)
	}
	for _, class := range sorted(w.classes) {
		w.setClass(class)
	}
	for _, object := range sorted(w.volumes) {
		w.setVolume(object)
	}
	for _, claim := range sorted(w.claims) {
		w.setClaim(claim)
	}
	w.set(sorted(w.pods)...)
}

// volumesAllow reports whether a pod's volumes are, or can be, available on a node.
func (w *world) volumesAllow(p *v1.Pod, n *v1.Node) bool {
	return !slices.ContainsFunc(claimsOf(p), func(name string) bool { return !w.claimAllows(p, n, name) })
}

func (w *world) claimAllows(p *v1.Pod, n *v1.Node, name string) bool {
	claim := w.claims[name]
	if claim == nil || w.exclusiveElsewhere(p, claim) {
		return false
	}
	if claim.Spec.VolumeName != "" {
		return isNear(w.volumes[claim.Spec.VolumeName], n)
	}
	if class := w.classes[*claim.Spec.StorageClassName]; class == nil || class.Name == early {
		return false
	}
	if node := w.selectedNode(claim); node != "" {
		return node == n.Name
	}
	if *claim.Spec.StorageClassName == dynamic {
		return true
	}
	for _, object := range w.volumes {
		if owner := w.ownerOf(object); owner == claim.UID {
			return isNear(object, n)
		}
	}
	for _, object := range w.volumes {
		fits := object.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) >= 0
		if w.ownerOf(object) == "" && object.Spec.StorageClassName == static && fits && isNear(object, n) {
			return true
		}
	}
	return false
}

func isNear(object *v1.PersistentVolume, n *v1.Node) bool {
	return object != nil && volume.CheckNodeAffinity(object, n.Labels) == nil
}

func (w *world) exclusiveElsewhere(p *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	if claim.Spec.AccessModes[0] != v1.ReadWriteOncePod {
		return false
	}
	for _, o := range w.pods {
		if o != p && w.where(o) != "" && slices.Contains(claimsOf(o), claim.Name) {
			return true
		}
	}
	return false
}

// ownerOf returns the claim to which a volume belongs, or will after a write that is in flight.
func (w *world) ownerOf(object *v1.PersistentVolume) types.UID {
	if object.Spec.ClaimRef != nil {
		return object.Spec.ClaimRef.UID
	}
	for _, d := range w.reserving {
		for _, match := range d.reservation.Volumes.Bind {
			if match.Volume.Name == object.Name && match.Volume.ResourceVersion == object.ResourceVersion {
				return match.Claim.UID
			}
		}
	}
	return ""
}

// selectedNode returns the node for which a claim's volume is, or will be, created.
func (w *world) selectedNode(claim *v1.PersistentVolumeClaim) string {
	if node := claim.Annotations[volume.AnnSelectedNode]; node != "" {
		return node
	}
	for _, d := range w.reserving {
		for _, provision := range d.reservation.Volumes.Provision {
			if provision.Claim.UID == claim.UID && provision.Claim.ResourceVersion == claim.ResourceVersion {
				return d.node
			}
		}
	}
	return ""
}

// checkBound fails the test if a pod is bound to a node on which one of its volumes is missing, or
// if a volume has been given to two claims.
func (w *world) checkBound(p *v1.Pod, n *v1.Node) {
	for _, name := range claimsOf(p) {
		claim := w.claims[name]
		if claim == nil || claim.Spec.VolumeName == "" || !isNear(w.volumes[claim.Spec.VolumeName], n) {
			w.t.Fatalf("%s is bound to %s, where its claim %s has no volume\n%s", p.Name, n.Name, name, w.describe(p))
		}
		if object := w.volumes[claim.Spec.VolumeName]; object.Spec.ClaimRef.UID != claim.UID {
			w.t.Fatalf("%s is bound with %s, which belongs to %s", p.Name, object.Name, object.Spec.ClaimRef.Name)
		}
	}
}

func (w *world) describeStorage(p *v1.Pod) string {
	text := fmt.Sprintf("reserving %d, claims %v\n", len(w.reserving), claimsOf(p))
	for _, claim := range sorted(w.claims) {
		text += fmt.Sprintf("claim %s %s %v %s %v v%s -> %q\n", claim.Name, *claim.Spec.StorageClassName, claim.Spec.AccessModes,
			claim.Spec.Resources.Requests.Storage(), claim.Annotations, claim.ResourceVersion, claim.Spec.VolumeName)
	}
	for _, object := range sorted(w.volumes) {
		text += fmt.Sprintf("volume %s %s %s %v owner %q v%s\n", object.Name, object.Spec.StorageClassName, object.Spec.Capacity.Storage(),
			object.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values, w.ownerOf(object), object.ResourceVersion)
	}
	return text
}
