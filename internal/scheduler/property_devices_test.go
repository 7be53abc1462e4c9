// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
)

// deviceWorld has the API's pods and ResourceClaims, and does the work of the lanes and of the resource
// claim controller.
type deviceWorld struct {
	*bench
	t       *testing.T
	random  *rand.Rand
	nodes   []string
	claims  map[string]*resourcev1.ResourceClaim
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
				claims: map[string]*resourcev1.ResourceClaim{}, pods: map[string]*v1.Pod{}}
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
	claim := w.claims[*pod.Spec.ResourceClaims[0].ResourceClaimName]
	freed := claim.DeepCopy()
	freed.Status.ReservedFor = nil
	for _, user := range claim.Status.ReservedFor {
		if user.UID != pod.UID {
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
		taken := now.Status.Allocation != nil && planned.Allocation != nil
		lost := now.Status.Allocation == nil && planned.Allocation == nil
		if taken || lost || w.random.IntN(5) == 0 {
			w.reserved(d.pod.UID, objects, errors.New("no"))
			return
		}
		claim := now.DeepCopy()
		if planned.Allocation != nil {
			claim.Status.Allocation = planned.Allocation
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: d.pod.Name, UID: d.pod.UID})
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
		case d.undo:
			w.unreserve(d.pod)
		case d.node == "":
		case d.reservation != nil:
			w.writing[d.pod.Name] = &d
		default:
			w.bindable(d.pod, d.node)
			w.binding[d.pod.Name] = d.node
		}
	}
}

// unreserve does what Scheduler.unreserve does.
func (w *deviceWorld) unreserve(pod *model.Pod) {
	claim := w.claims[*pod.Spec.ResourceClaims[0].ResourceClaimName].DeepCopy()
	var others []resourcev1.ResourceClaimConsumerReference
	for _, user := range claim.Status.ReservedFor {
		if user.UID != pod.UID {
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
	for _, user := range claim.Status.ReservedFor {
		if user.UID == pod.UID {
			return
		}
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
