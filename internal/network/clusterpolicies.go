// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	_ "embed"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/kindred-project/kindred/internal/network/policy"
)

//go:generate sh -c "cp $(go list -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml clusternetworkpolicies.yaml && chmod 644 clusternetworkpolicies.yaml"

// ClusterPolicyDefinition is the CustomResourceDefinition of ClusterNetworkPolicies, of the module's experimental channel.
//
//go:embed clusternetworkpolicies.yaml
var ClusterPolicyDefinition []byte

// ClusterPolicies is the resource of ClusterNetworkPolicies.
var ClusterPolicies = v1alpha2.SchemeGroupVersion.WithResource("clusternetworkpolicies")

// registerClusterPolicies watches ClusterNetworkPolicies, and the nodes that they name.
func (n *Network) registerClusterPolicies() error {
	if n.options.ClusterPolicies == nil {
		return nil
	}
	return errors.Join(
		followWith(n, n.options.ClusterPolicies,
			func(change func(*policy.Compiler)) { n.inbox.newPolicy(change, n.gate.Close) },
			n.setClusterPolicy,
			func(c *policy.Compiler, p *unstructured.Unstructured) { c.DeleteClusterPolicy(p.GetName()) }),
		follow(n, n.options.Informers.Core().V1().Nodes().Informer(),
			(*policy.Compiler).SetNode,
			func(c *policy.Compiler, node *v1.Node) { c.DeleteNode(node.Name) }),
	)
}

// setClusterPolicy gives a policy to the compiler. What is invalid or not supported fails closed, and gets an event.
func (n *Network) setClusterPolicy(c *policy.Compiler, p *unstructured.Unstructured) {
	cnp := &v1alpha2.ClusterNetworkPolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Object, cnp)
	if err != nil {
		c.DeleteClusterPolicy(p.GetName())
		err = fmt.Errorf("%w; the policy selects no pods", err)
	} else {
		err = c.SetClusterPolicy(cnp)
	}
	if err != nil {
		n.options.Events.Event(p, v1.EventTypeWarning, "InvalidPolicy", err.Error())
	}
}
