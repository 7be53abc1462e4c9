// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterapi holds Cluster API's own assertions of owner references, finalizers and resource versions against a cluster that
// exists, and its end-to-end test of the quick start against a management cluster that exists. A focus selects either.
package clusterapi

import (
	"context"
	"flag"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"
)

var (
	kubeconfig = flag.String("cluster.kubeconfig", "", "the management cluster")
	namespace  = flag.String("cluster.namespace", "default", "the namespace of the Cluster")
	cluster    = flag.String("cluster.name", "", "the name of the Cluster")
	topology   = flag.Bool("cluster.topology", false, "the Cluster has a topology of a ClusterClass")
)

func TestAssertions(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Cluster API's assertions")
}

// The specs leave the Cluster as they find it, so that each can run alone. Ordered, they run as in upstream's test.
var _ = Describe("the objects of the Cluster", Ordered, func() {
	var proxy framework.ClusterProxy
	BeforeAll(func() {
		kinds := runtime.NewScheme()
		framework.TryAddDefaultSchemes(kinds)
		proxy = framework.NewClusterProxy("management", *kubeconfig, kinds)
		DeferCleanup(func() { proxy.Dispose(context.Background()) })
	})
	own := func() clusterctlcluster.GetOwnerGraphFilterFunction {
		return clusterctlcluster.FilterClusterObjectsWithNameFilter(*cluster)
	}
	It("have the owners of the table", func() {
		framework.AssertOwnerReferences(*namespace, *kubeconfig, own(), owners()...)
	})
	It("get lost owners again", func(ctx SpecContext) {
		framework.ValidateOwnerReferencesResilience(ctx, proxy, *namespace, *cluster, own(), owners()...)
	})
	It("name owners in the current version", func(ctx SpecContext) {
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, *namespace, *cluster, own(), owners()...)
	})
	It("get lost finalizers again", func(ctx SpecContext) {
		core := framework.CoreFinalizersAssertionWithLegacyClusters
		if *topology {
			core = framework.CoreFinalizersAssertionWithClassyClusters
		}
		framework.ValidateFinalizersResilience(ctx, proxy, *namespace, *cluster, own(), core,
			framework.KubeadmControlPlaneFinalizersAssertion, framework.ExpFinalizersAssertion, framework.DevInfraFinalizersAssertion)
	})
	It("are not written without a reason", func(ctx SpecContext) {
		framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
			ClusterProxy: proxy, Namespace: *namespace, OwnerGraphFilterFunction: own(),
		})
	})
})

type ownerAssertions = map[string]func(types.NamespacedName, []metav1.OwnerReference) error

// owners are upstream's assertions for all kinds of the table.
func owners() []ownerAssertions {
	return []ownerAssertions{
		framework.CoreOwnerReferenceAssertion,
		framework.ExpOwnerReferenceAssertions,
		framework.DevInfraOwnerReferenceAssertions(*topology),
		framework.KubeadmBootstrapOwnerReferenceAssertions,
		framework.KubeadmControlPlaneOwnerReferenceAssertions(*topology),
		framework.KubernetesReferenceAssertions,
	}
}
