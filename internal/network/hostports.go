// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/links"
	"github.com/kindred-project/kindred/internal/network/hostport"
	"github.com/kindred-project/kindred/internal/network/policy"
	"github.com/kindred-project/kindred/internal/network/service"
)

// hostPorts has the pods of this node whose host ports are in the table.
type hostPorts struct {
	// pods are keyed by the source of their fragments.
	pods map[string]podPorts
	gate *policy.Gate
	// added and removed are the UDP ports whose flows have to be forgotten.
	added, removed []hostport.Mapping
}

// podPorts are the host ports of one pod.
type podPorts struct {
	mappings []hostport.Mapping
	members  []policy.Member
}

func newHostPorts() hostPorts {
	return hostPorts{pods: map[string]podPorts{}, gate: policy.NewGate()}
}

// hostPortsPrefix begins the sources of fragments of host ports. No namespace contains a slash, so no Service has such
// a source.
const hostPortsPrefix = "hostports/"

// registerHostPorts watches the pods of this node that have host ports. A runtime that the user provides translates
// host ports by its own network plugin.
func (n *Network) registerHostPorts() error {
	if n.rules.Bridge == "" {
		return nil
	}
	return n.watch(n.options.Informers.Core().V1().Pods().Informer(), func(o any) {
		if pod := o.(*v1.Pod); pod.Spec.NodeName == n.options.Node && hostport.Wanted(pod) {
			n.inbox.hostPorts(pod.Namespace + "/" + pod.Name)
		}
	})
}

// compileHostPorts updates the host ports of a pod.
func (n *Network) compileHostPorts(key string) {
	source, now := hostPortsPrefix+key, podPorts{}
	namespace, name, _ := strings.Cut(key, "/")
	pod, err := n.options.Informers.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	if err == nil && pod.Spec.NodeName == n.options.Node {
		now.mappings = hostport.Of(pod)
	}
	uses := now.mappings != nil && hostport.Uses(pod, v1.ProtocolSCTP)
	n.checkSCTP(source, pod, uses)
	if now.mappings != nil {
		for _, address := range hostport.Addresses(pod) {
			now.members = append(now.members, policy.Member{Pod: pod.UID, Address: address})
		}
	}
	old := n.hostPorts.pods[source]
	if slices.Equal(old.mappings, now.mappings) && slices.Equal(old.members, now.members) {
		return
	}
	n.hostPorts.set(source, now)
	n.table.Put(source, hostport.Rules(now.mappings))
}

// set replaces the host ports of a pod.
func (h *hostPorts) set(source string, now podPorts) {
	old := h.pods[source]
	for _, m := range old.mappings {
		if m.Protocol == v1.ProtocolUDP && !slices.Contains(now.mappings, m) {
			h.removed = append(h.removed, m)
		}
	}
	for _, m := range now.mappings {
		if m.Protocol == v1.ProtocolUDP && !slices.Contains(old.mappings, m) {
			h.added = append(h.added, m)
		}
	}
	if h.pods[source] = now; now.mappings == nil {
		delete(h.pods, source)
	}
}

// written ends the wait of pods whose host ports are in the kernel.
func (h *hostPorts) written() {
	var known []policy.Member
	for _, p := range h.pods {
		known = append(known, p.members...)
	}
	h.gate.Set(known, false)
}

// datagrams returns where the UDP packets to changed host ports go, and forgets the changes. Host ports without a
// pod have no endpoints, so that the flows to their former pods are forgotten.
func (h *hostPorts) datagrams() ([]service.Datagrams, error) {
	if len(h.added)+len(h.removed) == 0 {
		return nil, nil
	}
	local, err := localAddresses()
	if err != nil {
		return nil, err
	}
	var all []service.Datagrams
	add := func(m hostport.Mapping, endpoints ...netip.AddrPort) {
		for _, a := range local {
			if m.Host == a || m.Host.IsUnspecified() && m.Host.Is4() == a.Is4() {
				all = append(all, service.Datagrams{To: a, Port: m.Port, Endpoints: endpoints})
			}
		}
	}
	for _, m := range h.added {
		add(m, m.To)
	}
	for _, m := range h.removed {
		add(m)
	}
	h.added, h.removed = nil, nil
	return all, nil
}

// localAddresses returns the addresses of the machine.
func localAddresses() ([]netip.Addr, error) {
	present, err := links.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the machine's addresses: %w", err)
	}
	var all []netip.Addr
	for _, a := range present {
		if address, ok := netip.AddrFromSlice(a.IP); ok {
			all = append(all, address.Unmap())
		}
	}
	return all, nil
}

// refusedHostPorts records an event on the pod whose host ports the kernel refuses. Its containers do not start.
func (n *Network) refusedHostPorts(source string, err error) {
	key, ok := strings.CutPrefix(source, hostPortsPrefix)
	if !ok {
		return
	}
	n.hostPorts.set(source, podPorts{})
	namespace, name, _ := strings.Cut(key, "/")
	pod, lookupErr := n.options.Informers.Core().V1().Pods().Lister().Pods(namespace).Get(name)
	if lookupErr != nil {
		return // it has been deleted
	}
	n.options.Events.Eventf(pod, v1.EventTypeWarning, "RulesRefused", "Node %s cannot open the host ports of this pod: %s", n.options.Node, firstLine(err))
}
