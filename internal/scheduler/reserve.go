// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
)

// A pod with a reservation passes through these states between decision and binding. It is on its
// node for every later decision, and its reservation counts.
//
//	writing   a lane writes the reservation to the API (reservations.go);
//	waiting   other programs make it take effect: the volume binder, or the provisioner of a class;
//	binding   it has taken effect, and a lane writes the binding.
//
// After an error, or bindTimeout in state waiting, the pod is removed from its node and tried again
// after its backoff. What was written remains, and the next attempt is based on it.

// bindTimeout is the time limit of a reservation (upstream: VolumeBindingArgs.bindTimeoutSeconds).
const bindTimeout = 600 * time.Second

// deadline is the time at which a reservation fails.
type deadline struct {
	binding *binding
	at      time.Time
}

// written is what a lane wrote of a reservation: the new states of the objects.
type written []any

// reserved moves a pod whose reservation was written to state waiting.
func (m *machine) reserved(uid types.UID, objects written, err error) {
	for _, object := range objects {
		m.wrote(object)
	}
	b := m.binding[uid]
	if b == nil {
		return
	}
	b.created(objects)
	if err != nil {
		m.notBound(uid, err)
		return
	}
	b.written = true
	for _, key := range keysOf(b.reservation) {
		if m.awaiting[key] == nil {
			m.awaiting[key] = map[types.UID]bool{}
		}
		m.awaiting[key][uid] = true
	}
	m.deadlines = append(m.deadlines, deadline{b, m.queue.Now().Add(bindTimeout)})
	if plugin.HasBindingConditions(m.cluster, &b.reservation.Devices) {
		pending := &podEvent{"BindingConditionsPending", "waiting for binding conditions for device on node " + b.node}
		m.reports = append(m.reports, decision{pod: b.item.Pod, event: pending})
	}
	m.progress(uid)
}

// created replaces the claim for extended resources in the reservation by the one that a lane has
// created.
func (b *binding) created(objects written) {
	for _, object := range objects {
		if claim, isClaim := object.(*resourcev1.ResourceClaim); isClaim && model.IsExtended(claim) {
			b.reservation.Devices.Extended.Claim = claim
		}
	}
}

// waitKey is a claim that a pod waits for: a ResourceClaim if it is for devices.
type waitKey struct {
	devices bool
	claim   types.NamespacedName
}

func keysOf(r *model.Reservation) []waitKey {
	var keys []waitKey
	for _, claim := range r.Volumes.Claims() {
		keys = append(keys, waitKey{false, claim})
	}
	for _, claim := range r.Devices.Planned() {
		keys = append(keys, waitKey{true, model.Key(claim)})
	}
	return keys
}

// wrote updates an object with what a lane has written, before the watch shows it.
func (m *machine) wrote(object any) {
	switch object := object.(type) {
	case *v1.PersistentVolume:
		m.cluster.Volumes.WroteVolume(object)
	case *v1.PersistentVolumeClaim:
		m.cluster.Volumes.WroteClaim(object)
	case *resourcev1.ResourceClaim:
		before := m.cluster.Devices.Claim(model.Key(object))
		if m.cluster.Devices.WroteClaim(object) {
			wakeFor(m, plugin.ResourceClaimChanged, before, object)
		}
	}
}

// progress decides to bind a waiting pod if its reservation has taken effect.
func (m *machine) progress(uid types.UID) {
	b := m.binding[uid]
	if b == nil || !b.isWaiting() {
		return
	}
	done, err := m.hasEffect(b)
	switch {
	case err != nil:
		m.notBound(uid, err)
	case done:
		b.bound = true
		m.reports = append(m.reports, decision{pod: b.item.Pod, node: b.node})
	}
}

func (b *binding) isWaiting() bool { return b.written && !b.bound }

// hasEffect reports whether a written reservation has taken effect. An error means that it will not.
func (m *machine) hasEffect(b *binding) (bool, error) {
	volumes, err := plugin.VolumesBound(m.cluster, &b.reservation.Volumes, b.node)
	if err != nil {
		return false, volumesFailed(err)
	}
	devices, err := plugin.DevicesReady(m.cluster, &b.reservation.Devices, m.queue.Now())
	if err != nil {
		return false, devicesFailed(err)
	}
	return volumes && devices, nil
}

func volumesFailed(err error) error {
	return fmt.Errorf("running PreBind plugin %q: binding volumes: %w", "VolumeBinding", err)
}

func devicesFailed(err error) error {
	return fmt.Errorf("running PreBind plugin %q: %w", "DynamicResources", err)
}

// progressFor looks at the pods that wait for a claim.
func (m *machine) progressFor(key waitKey) {
	for _, uid := range slices.Sorted(maps.Keys(m.awaiting[key])) {
		m.progress(uid)
	}
}

// progressOn looks at the pods that wait on a node.
func (m *machine) progressOn(node string) {
	if len(m.awaiting) == 0 {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(m.binding)) {
		if m.binding[uid].node == node {
			m.progress(uid)
		}
	}
}

// expire ends the wait of pods that have waited for too long.
func (m *machine) expire() {
	for len(m.deadlines) > 0 {
		first := m.deadlines[0]
		uid := first.binding.item.Pod.UID
		waits := m.binding[uid] == first.binding && first.binding.isWaiting()
		if waits && m.queue.Now().Before(first.at) {
			return
		}
		m.deadlines = m.deadlines[1:]
		if waits {
			m.notBound(uid, m.timeout(first.binding))
		}
	}
}

// timeout returns what a pod has waited for too long.
func (m *machine) timeout(b *binding) error {
	if bound, _ := plugin.VolumesBound(m.cluster, &b.reservation.Volumes, b.node); !bound {
		return volumesFailed(context.DeadlineExceeded)
	}
	return devicesFailed(fmt.Errorf("device binding timeout: %w", context.DeadlineExceeded))
}

// due returns when the machine needs attention next without any change; false if never.
func (m *machine) due() (time.Time, bool) {
	next, found := m.queue.Next()
	if len(m.deadlines) > 0 && (!found || m.deadlines[0].at.Before(next)) {
		return m.deadlines[0].at, true
	}
	return next, found
}

// forget ends the binding of a pod, if it is being bound, and with it its reservation.
func (m *machine) forget(uid types.UID) {
	b := m.binding[uid]
	if b == nil {
		return
	}
	delete(m.binding, uid)
	if b.reservation == nil {
		return
	}
	for _, key := range keysOf(b.reservation) {
		if delete(m.awaiting[key], uid); len(m.awaiting[key]) == 0 {
			delete(m.awaiting, key)
		}
	}
	m.cluster.Release(b.reservation, uid)
	if !b.bound {
		m.wakeReleased(b.reservation)
	}
}

// wakeReleased requeues pods that may use what a reservation no longer holds.
func (m *machine) wakeReleased(r *model.Reservation) {
	for _, match := range r.Volumes.Bind {
		if object := m.cluster.Volumes.Volume(match.Volume.Name); object != nil {
			m.wake(plugin.Event{Kind: plugin.VolumeChanged, OldObject: match.Volume, Object: object})
		}
	}
	for _, provision := range r.Volumes.Provision {
		if claim := m.cluster.Volumes.Claim(model.Key(provision.Claim)); claim != nil {
			m.wake(plugin.Event{Kind: plugin.ClaimChanged, OldObject: provision.Claim, Object: claim})
		}
	}
	plans := r.Devices.Claims
	if extended := r.Devices.Extended; extended != nil {
		plans = append(slices.Clip(plans), model.ClaimPlan{Claim: extended.Claim, Allocation: extended.Allocation})
	}
	for _, planned := range plans {
		if planned.Allocation != nil {
			allocated := planned.Claim.DeepCopy()
			allocated.Status.Allocation = planned.Allocation
			wakeFor(m, plugin.ResourceClaimChanged, allocated, planned.Claim)
		}
	}
}

// nominee returns the pod as the API has it while its reservation is written: nominated to its
// node.
func (b *binding) nominee() *model.Pod {
	if b.reservation == nil {
		return b.item.Pod
	}
	pod, object := *b.item.Pod, *b.item.Pod.Pod
	object.Status.NominatedNodeName = b.node
	pod.Pod = &object
	return &pod
}
