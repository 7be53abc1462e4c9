// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/kindred-project/kindred/internal/crds"
	"github.com/kindred-project/kindred/internal/network"
)

// definitionLimit is how long the API server may take to serve a new kind.
const definitionLimit = 30 * time.Second

// clusterPolicies installs the kind ClusterNetworkPolicy and returns an informer of its objects; nil if the cluster is to
// have none.
func (m *Machine) clusterPolicies(ctx context.Context) (cache.SharedIndexInformer, error) {
	if !m.options.ClusterNetworkPolicies {
		return nil, nil
	}
	config := m.api.ConfigFor(clusterPoliciesUser)
	definitions, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, definitionLimit)
	defer cancel()
	if err := crds.Ensure(limited, definitions, network.ClusterPolicyDefinition, network.ClusterPolicies.Version); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewFilteredDynamicInformer(client, network.ClusterPolicies, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), nil
}
