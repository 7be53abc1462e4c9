// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kindred-project/kindred/internal/network/policy"
)

// register watches the API. Handlers only note what changed.
func (n *Network) register() error {
	f := n.options.Informers
	endpointSlices := f.Discovery().V1().EndpointSlices().Informer()
	if err := endpointSlices.AddIndexers(cache.Indexers{byService: func(o any) ([]string, error) {
		return []string{serviceOf(o.(*discoveryv1.EndpointSlice))}, nil
	}}); err != nil {
		return err
	}
	n.slices = endpointSlices.GetIndexer()
	return errors.Join(
		n.watch(f.Core().V1().Services().Informer(), func(o any) {
			svc := o.(*v1.Service)
			n.inbox.service(svc.Namespace + "/" + svc.Name)
		}),
		n.watch(endpointSlices, func(o any) { n.inbox.service(serviceOf(o.(*discoveryv1.EndpointSlice))) }),
		n.watch(f.Core().V1().Nodes().Informer(), func(o any) {
			n.inbox.nodes()
			if o.(*v1.Node).Name == n.options.Node {
				n.inbox.surroundings()
			}
		}),
		n.watch(f.Networking().V1().ServiceCIDRs().Informer(), func(any) { n.inbox.surroundings() }),
		n.registerPolicies(),
		n.registerClusterPolicies(),
		n.registerHostPorts(),
	)
}

// registerPolicies watches what NetworkPolicies depend on.
func (n *Network) registerPolicies() error {
	f := n.options.Informers
	return errors.Join(
		followWith(n, f.Networking().V1().NetworkPolicies().Informer(),
			func(change func(*policy.Compiler)) { n.inbox.newPolicy(change, n.gate.Close) },
			n.setPolicy,
			func(c *policy.Compiler, p *networkingv1.NetworkPolicy) { c.DeletePolicy(p.Namespace, p.Name) }),
		follow(n, f.Core().V1().Pods().Informer(),
			(*policy.Compiler).SetPod,
			func(c *policy.Compiler, p *v1.Pod) { c.DeletePod(p.Namespace, p.Name) }),
		follow(n, f.Core().V1().Namespaces().Informer(),
			(*policy.Compiler).SetNamespace,
			func(c *policy.Compiler, ns *v1.Namespace) { c.DeleteNamespace(ns.Name) }),
		follow(n, f.Discovery().V1().EndpointSlices().Informer(),
			(*policy.Compiler).SetSlice,
			func(c *policy.Compiler, s *discoveryv1.EndpointSlice) { c.DeleteSlice(s.Namespace, s.Name) }),
	)
}

// setPolicy gives a policy to the compiler. What is invalid in it allows nothing, and gets an event.
func (n *Network) setPolicy(c *policy.Compiler, p *networkingv1.NetworkPolicy) {
	if err := c.SetPolicy(p); err != nil {
		n.options.Events.Event(p, v1.EventTypeWarning, "InvalidPolicy", err.Error())
	}
}

// follow passes each state of the objects of a kind to the compiler of policies.
func follow[T any](n *Network, informer cache.SharedIndexInformer, set, remove func(*policy.Compiler, *T)) error {
	return followWith(n, informer, n.inbox.policy, set, remove)
}

// followWith is follow, with another function that notes objects that were added or changed.
func followWith[T any](n *Network, informer cache.SharedIndexInformer, note func(func(*policy.Compiler)), set, remove func(*policy.Compiler, *T)) error {
	put := func(o any) { note(func(c *policy.Compiler) { set(c, o.(*T)) }) }
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, now any) { put(now) },
		DeleteFunc: func(o any) {
			gone := last(o).(*T)
			n.inbox.policy(func(c *policy.Compiler) { remove(c, gone) })
		},
	})
	if err == nil {
		n.synced = append(n.synced, registration.HasSyncedChecker())
	}
	return err
}

// last returns the last known state of a deleted object.
func last(o any) any {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return o
}

// watch calls note for each object that is added, changed or deleted, with its old and new state.
func (n *Network) watch(informer cache.SharedIndexInformer, note func(any)) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(old, now any) { note(old); note(now) },
		DeleteFunc: func(o any) { note(last(o)) },
	})
	if err == nil {
		n.synced = append(n.synced, registration.HasSyncedChecker())
	}
	return err
}

// serviceOf returns the namespace and name of a slice's Service.
func serviceOf(slice *discoveryv1.EndpointSlice) string {
	return slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
}
