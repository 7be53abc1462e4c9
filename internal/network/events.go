// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// report records an event on the Service whose rules the kernel refuses.
func (n *Network) report(r nft.Refused) {
	namespace, name, _ := strings.Cut(r.Source, "/")
	svc, err := n.options.Informers.Core().V1().Services().Lister().Services(namespace).Get(name)
	if err != nil {
		return // not the rules of a Service
	}
	n.options.Events.Eventf(svc, v1.EventTypeWarning, "RulesRefused", "Node %s cannot route this Service: %s", n.options.Node, firstLine(r.Err))
}

// reportPolicies records an event on each policy of pods whose rules the kernel refuses.
func (n *Network) reportPolicies(r nft.Refused, policies []types.NamespacedName) {
	for _, p := range policies {
		if o := n.policyObject(p); o != nil {
			n.options.Events.Eventf(o, v1.EventTypeWarning, "RulesRefused",
				"Node %s cannot apply the policies of some pods and drops their packets: %s", n.options.Node, firstLine(r.Err))
		}
	}
}

// policyObject returns a policy; nil if it does not exist any more. ClusterNetworkPolicies have no namespace.
func (n *Network) policyObject(p types.NamespacedName) runtime.Object {
	if p.Namespace != "" {
		np, err := n.options.Informers.Networking().V1().NetworkPolicies().Lister().NetworkPolicies(p.Namespace).Get(p.Name)
		if err != nil {
			return nil
		}
		return np
	}
	cnp, exists, err := n.options.ClusterPolicies.GetStore().GetByKey(p.Name)
	if err != nil || !exists {
		return nil
	}
	return cnp.(runtime.Object)
}

// reportRoute records an event on each ServiceCIDR with a range whose route the kernel refuses.
func (n *Network) reportRoute(prefix netip.Prefix, err error) {
	all, _ := n.options.Informers.Networking().V1().ServiceCIDRs().Lister().List(labels.Everything()) // from the cache, which has no errors
	for _, cidr := range all {
		if slices.Contains(rangesOf(cidr), prefix) {
			n.options.Events.Eventf(cidr, v1.EventTypeWarning, "RouteRefused",
				"Node %s itself cannot reach Services in %s, because it cannot route them: %s", n.options.Node, prefix, firstLine(err))
		}
	}
}

// reportHealth records an event on a Service whose health check cannot be served. It is tried again every two seconds.
func (n *Network) reportHealth(svc *v1.Service, port int32, err error) {
	n.options.Events.Eventf(svc, v1.EventTypeWarning, "FailedToStartServiceHealthcheck",
		"node %s failed to start healthcheck %q on port %d: %v", n.options.Node, svc.Namespace+"/"+svc.Name, port, err)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
