// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kindred-project/kindred/internal/crds"
	"github.com/kindred-project/kindred/internal/network"
)

// definitionLimit is how long the API server may take to serve a new kind.
const definitionLimit = 30 * time.Second

// installClusterPolicies waits until the API has the kind.
func (m *Machine) installClusterPolicies(ctx context.Context, definitions clientset.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, definitionLimit)
	defer cancel()
	return crds.Ensure(ctx, definitions, network.ClusterPolicyDefinition, network.ClusterPolicies.Version)
}

// servesClusterPolicies reports whether the API has the kind.
func servesClusterPolicies(api discovery.ServerResourcesInterface) (bool, error) {
	served, err := api.ServerResourcesForGroupVersion(network.ClusterPolicies.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("whether the cluster has ClusterNetworkPolicies: %w", err)
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == network.ClusterPolicies.Resource }), nil
}

// clusterPolicies installs the kind ClusterNetworkPolicy, if this machine's cluster is to have it, and returns an informer of its objects;
// nil if there are none. A machine that has joined applies the policies of its cluster if the API has their kind.
func (m *Machine) clusterPolicies(ctx context.Context) (cache.SharedIndexInformer, error) {
	if !m.options.ClusterNetworkPolicies && !m.api.Elsewhere {
		return nil, nil
	}
	config := m.api.ConfigFor(clusterPoliciesUser)
	definitions, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if m.api.Elsewhere {
		if served, err := servesClusterPolicies(definitions.Discovery()); !served || err != nil {
			return nil, err
		}
	} else if err := m.installClusterPolicies(ctx, definitions); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewFilteredDynamicInformer(client, network.ClusterPolicies, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), nil
}
