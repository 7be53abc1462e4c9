// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// deviceWorld has the API's pods and ResourceClaims, and does the work of the lanes and of the resource
// claim controller. Some claims are those of PodGroups.
type deviceWorld struct {
	*bench
	t       *testing.T
	random  *rand.Rand
	nodes   []string
	claims  map[string]*resourcev1.ResourceClaim
	groups  map[string]*schedulingv1beta1.PodGroup
	pods    map[string]*v1.Pod
	writing map[string]*decision
	binding map[string]string
	version int
}

// TestRandomWalkOfDevices checks that no device is allocated to two claims, that a pod is bound only
// where its claim is allocated, and that no pod waits while a device is free. Writes fail, and the
// scheduler is restarted.
func TestRandomWalkOfDevices(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &deviceWorld{t: t, random: rand.New(rand.NewPCG(seed, 1)), nodes: []string{"n0", "n1", "n2"},
				claims: map[string]*resourcev1.ResourceClaim{}, pods: map[string]*v1.Pod{}, groups: map[string]*schedulingv1beta1.PodGroup{}}
			w.restart()
			for range 120 {
				w.step()
				w.settle()
				for range 4 { // until no pod is in backoff
					w.clock.Step(5 * time.Second)
					w.settle()
				}
				w.check()
			}
		})
	}
}

// restart starts a scheduler that knows only the API's objects. Each node has two devices.
func (w *deviceWorld) restart() {
	w.bench, w.writing, w.binding = newBench(), map[string]*decision{}, map[string]string{}
	w.setDeviceClass(testDeviceClass())
	for _, name := range w.nodes {
		w.setNode(testNode(name, "64"))
		slice := testDevices(name)
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: "d1"})
		w.setSlice(slice)
	}
	for _, claim := range sorted(w.claims) {
		w.setResourceClaim(claim)
	}
	w.bench.groups(sorted(w.groups)...)
	w.set(sorted(w.pods)...)
}

func (w *deviceWorld) put(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	w.version++
	claim = claim.DeepCopy()
	claim.ResourceVersion = fmt.Sprint(w.version)
	w.claims[claim.Name] = claim
	return claim
}

func (w *deviceWorld) step() {
	switch w.random.IntN(10) {
	case 0, 1, 2, 3: // a pod with a claim of its own, or one that another pod may use too
		name := fmt.Sprint("c", w.random.IntN(14))
		pod := testPod(fmt.Sprint("p", w.version), "100m", usingDevices(name))
		w.version++
		if name >= "c5" { // a claim of a PodGroup
			inGroup(name)(pod)
			if w.groups[name] == nil {
				w.groups[name] = gang(name, 0, sharing(name), func(g *schedulingv1beta1.PodGroup) { g.UID += types.UID(fmt.Sprint(w.version)) })
				w.setGroup(w.groups[name])
			}
		}
		w.pods[pod.Name] = pod
		w.set(pod)
		if w.claims[name] == nil {
			claim := testResourceClaim(name, "")
			claim.UID = types.UID(fmt.Sprint(name, w.version))
			w.setResourceClaim(w.put(claim))
		}
	case 4, 5:
		if pod := anyOf(w.random, w.pods); pod != nil {
			w.drop(pod)
		}
	case 6:
		if w.random.IntN(5) == 0 {
			w.restart()
		}
	case 7:
		if pod := anyOf(w.random, w.pods); pod != nil && w.binding[pod.Name] != "" {
			w.bind(pod)
		}
	default:
		if d := anyOf(w.random, w.writing); d != nil {
			w.write(d)
		}
	}
}

// drop deletes a pod, and does what the resource claim controller then does with its claim.
func (w *deviceWorld) drop(pod *v1.Pod) {
	delete(w.pods, pod.Name)
	delete(w.writing, pod.Name)
	delete(w.binding, pod.Name)
	w.removePod(pod.UID)
	w.release(w.claims[*pod.Spec.ResourceClaims[0].ResourceClaimName], pod.UID)
	group := w.groups[groupOf(pod)]
	if group == nil || slices.ContainsFunc(sorted(w.pods), func(other *v1.Pod) bool { return groupOf(other) == group.Name }) {
		return
	}
	delete(w.groups, group.Name)
	w.removeGroup(group)
	w.release(w.claims[group.Name], group.UID)
}

func groupOf(pod *v1.Pod) string { return model.NewPod(pod).Group.Name }

// release removes a user of a claim, and with the last one the allocation.
func (w *deviceWorld) release(claim *resourcev1.ResourceClaim, uid types.UID) {
	freed := claim.DeepCopy()
	freed.Status.ReservedFor = nil
	for _, user := range claim.Status.ReservedFor {
		if user.UID != uid {
			freed.Status.ReservedFor = append(freed.Status.ReservedFor, user)
		}
	}
	if len(freed.Status.ReservedFor) == 0 && len(claim.Status.ReservedFor) > 0 {
		freed.Status.Allocation = nil
	}
	w.setResourceClaim(w.put(freed))
}

// bind lets the API accept or refuse a binding.
func (w *deviceWorld) bind(pod *v1.Pod) {
	node := w.binding[pod.Name]
	delete(w.binding, pod.Name)
	if w.random.IntN(4) == 0 {
		w.notBound(pod.UID, errors.New("refused"))
		return
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	w.pods[pod.Name] = bound
	w.set(bound)
}

// write does what Scheduler.writeDevices and the API do for a pod, unless it fails.
func (w *deviceWorld) write(d *decision) {
	delete(w.writing, d.pod.Name)
	var objects written
	for _, planned := range d.reservation.Devices.Claims {
		now := w.claims[planned.Claim.Name]
		taken := now.Status.Allocation != nil && planned.Allocation != nil && !isAllocation(now.Status.Allocation, planned.Allocation)
		lost := now.Status.Allocation == nil && planned.Allocation == nil
		if taken || lost || w.random.IntN(5) == 0 {
			w.reserved(d.pod.UID, objects, errors.New("no"))
			return
		}
		claim := now.DeepCopy()
		if planned.Allocation != nil {
			claim.Status.Allocation = planned.Allocation
		}
		if !isUser(claim, planned.User.UID) {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, planned.User)
		}
		objects = append(objects, w.put(claim))
	}
	w.reserved(d.pod.UID, objects, nil)
	for _, object := range objects {
		w.setResourceClaim(object.(*resourcev1.ResourceClaim))
	}
}

func (w *deviceWorld) settle() {
	for d, found := w.next(); found; d, found = w.next() {
		switch {
		case d.group != nil:
			w.giveBack(d.group)
		case d.undo:
			w.unreserve(d.pod.Spec.ResourceClaims[0].ResourceClaimName, d.pod.UID)
		case d.node == "":
		case d.reservation != nil:
			w.writing[d.pod.Name] = &d
		default:
			w.bindable(d.pod, d.node)
			w.binding[d.pod.Name] = d.node
		}
	}
}

// giveBack does what Scheduler.reportGroup does with the claims of a group.
func (w *deviceWorld) giveBack(r *groupReport) {
	switch {
	case r.release.deallocate != nil:
		claim := w.claims[r.release.deallocate.Name].DeepCopy()
		claim.Status = resourcev1.ResourceClaimStatus{}
		w.released(r.release.deallocate, w.put(claim))
	case r.release.unreserve != nil:
		w.unreserve(&r.release.unreserve.Name, r.object.UID)
		w.released(r.release.unreserve, nil)
	}
}

// unreserve does what Scheduler.endReservation does.
func (w *deviceWorld) unreserve(name *string, uid types.UID) {
	claim := w.claims[*name].DeepCopy()
	var others []resourcev1.ResourceClaimConsumerReference
	for _, user := range claim.Status.ReservedFor {
		if user.UID != uid {
			others = append(others, user)
		}
	}
	claim.Status.ReservedFor = others
	w.setResourceClaim(w.put(claim))
}

// bindable fails the test if a pod is bound where its claim is not allocated, or not for the pod.
func (w *deviceWorld) bindable(pod *model.Pod, node string) {
	claim := w.claims[*pod.Spec.ResourceClaims[0].ResourceClaimName]
	if claim.Status.Allocation == nil || claim.Status.Allocation.Devices.Results[0].Pool != node {
		w.t.Fatalf("%s is bound to %s, its claim is allocated as %+v", pod.Name, node, claim.Status.Allocation)
	}
	if group := w.groups[pod.Group.Name]; isUser(claim, pod.UID) || group != nil && isUser(claim, group.UID) {
		return
	}
	w.t.Fatalf("%s is bound, its claim is reserved for %+v", pod.Name, claim.Status.ReservedFor)
}

// check fails the test if two claims have one device, or a pod waits while a device is free.
func (w *deviceWorld) check() {
	owner := map[string]string{}
	for _, claim := range sorted(w.claims) {
		if claim.Status.Allocation == nil {
			continue
		}
		result := claim.Status.Allocation.Devices.Results[0]
		device := result.Pool + "/" + result.Device
		if owner[device] != "" {
			w.t.Fatalf("%s is allocated to %s and %s", device, owner[device], claim.Name)
		}
		owner[device] = claim.Name
	}
	if len(w.writing) > 0 {
		return // allocations in flight
	}
	for _, pod := range sorted(w.pods) {
		if pod.Spec.NodeName == "" && w.binding[pod.Name] == "" && len(owner) < 2*len(w.nodes) {
			w.t.Fatalf("%s waits for its claim %s, and only these devices are allocated: %v", pod.Name, *pod.Spec.ResourceClaims[0].ResourceClaimName, owner)
		}
	}
}
