// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceip

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Reporting controllers of the events of Repair, with upstream's names.
const (
	AddressReporter = "ipallocator-repair-controller"
	PortReporter    = "portallocator-repair-controller"
)

// Recorders record events of Services about addresses and ports, with upstream's messages.
type Recorders struct{ Addresses, Ports events.EventRecorder }

func (r Recorders) address(about runtime.Object, reason, action, note string, args ...any) {
	r.Addresses.Eventf(about, nil, corev1.EventTypeWarning, reason, action, note, args...)
}

func (r Recorders) port(about *corev1.Service, reason, note string, args ...any) {
	r.Ports.Eventf(about, nil, corev1.EventTypeWarning, reason, "PortAllocation", note, args...)
}

func (r Recorders) unclaimed(owner *corev1.Service, address netip.Addr) {
	r.address(owner, "ClusterIPNotAllocated", "ClusterIPAllocation", "Cluster IP [%v]: %s is not allocated; repairing", Family(address), address)
}

// strayed records that a claim names a Service which does not use the address.
func (r Recorders) strayed(owner *corev1.Service, address netip.Addr) {
	r.address(owner, "ClusterIPNotAllocated", "ClusterIPAllocation", "the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", Family(address), address, owner.Namespace, owner.Name)
}

func (r Recorders) shared(owner *corev1.Service, address netip.Addr) {
	r.address(owner, "ClusterIPAlreadyAllocated", "ClusterIPAllocation", "Cluster IP [%v]:%s was assigned to multiple services; please recreate service", Family(address), address)
}

func (r Recorders) outOfRange(owner *corev1.Service, address netip.Addr) {
	r.address(owner, "ClusterIPOutOfRange", "ClusterIPAllocation", "Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", Family(address), address)
}

func (r Recorders) leaked(claim *networkingv1.IPAddress) {
	const reason, action = "IPAddressNotAllocated", "IPAddressAllocation"
	if ref := claim.Spec.ParentRef; ref != nil && ref.Group == "" && ref.Resource == "services" {
		r.address(claim, reason, action, "IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", claim.Name, ref.Namespace, ref.Name)
		return
	}
	r.address(claim, reason, action, "IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", claim.Name, claim.Spec.ParentRef)
}

func (r Recorders) portUnclaimed(owner *corev1.Service, port int32) {
	r.port(owner, "PortNotAllocated", "Port %d is not allocated; repairing", port)
}

func (r Recorders) portShared(owner *corev1.Service, port int32) {
	r.port(owner, "PortAlreadyAllocated", "Port %d was assigned to multiple services; please recreate service", port)
}

func (r Recorders) portOutOfRange(owner *corev1.Service, port int32) {
	r.port(owner, "PortOutOfRange", "Port %d is not within the port range %s; please recreate service", port, fmt.Sprintf("%d-%d", firstPort, firstPort+portCount-1))
}
