// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Options are the dependencies of a Manager.
type Options struct {
	Store  *Store
	Client kubernetes.Interface
	// Node is the name of the node.
	Node string
	// Changed is called when the health of a pod's devices has changed.
	Changed func(pod types.UID)
	// NoCDI is why the runtime cannot give devices to containers, or nil.
	NoCDI error
	Clock clock.WithTicker
	// Intercept returns what counts the calls of a driver, if set.
	Intercept func(driver string) grpc.UnaryClientInterceptor
}

// Manager has claims prepared and unprepared. It handles the registration of drivers.
type Manager struct {
	options Options
	ctx     context.Context // of the work in the background
	drivers *drivers
	health  health
	locks   locks
}

// New returns a Manager whose work in the background ends with ctx.
func New(ctx context.Context, options Options) *Manager {
	m := &Manager{
		options: options, ctx: ctx,
		locks:  locks{held: map[string]chan struct{}{}},
		health: health{drivers: map[string]map[deviceID]deviceHealth{}},
	}
	m.drivers = &drivers{
		ctx: ctx, clock: options.Clock, wipe: m.wipe,
		byName: map[string][]*driver{}, wipes: map[string]context.CancelFunc{},
	}
	return m
}

// RemoveOrphans unprepares the claims of all pods but those to keep.
func (m *Manager) RemoveOrphans(ctx context.Context, keep func(types.UID) bool) error {
	orphans := map[types.UID]bool{}
	for _, c := range m.options.Store.all() {
		for _, pod := range c.Pods {
			if !keep(pod) {
				orphans[pod] = true
			}
		}
	}
	var failures []error
	for pod := range orphans {
		failures = append(failures, m.Unprepare(ctx, pod))
	}
	return errors.Join(failures...)
}

// driversOf returns the drivers of a claim's devices.
func driversOf(c *resourcev1.ResourceClaim) map[string][]device {
	found := map[string][]device{}
	for _, result := range c.Status.Allocation.Devices.Results {
		found[result.Driver] = nil
	}
	return found
}

// claimsOf returns the pod's claims: its own and the one for its extended resources (KEP-5004).
func claimsOf(pod *v1.Pod) []v1.PodResourceClaim {
	claims := pod.Spec.ResourceClaims
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		claims = append(claims[:len(claims):len(claims)], v1.PodResourceClaim{ResourceClaimName: &extended.ResourceClaimName})
	}
	return claims
}
