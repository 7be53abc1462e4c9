// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"flag"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	clusterctlConfig  = flag.String("clusterctl.config", "", "the configuration of clusterctl, which names the repository of the providers")
	infrastructure    = flag.String("infrastructure", "", "the infrastructure provider")
	flavor            = flag.String("flavor", "", "the flavor of the template")
	kubernetesVersion = flag.String("kubernetes.version", "", "the version of Kubernetes that the machines have")
	workers           = flag.Int64("workers", 1, "the number of workers")
	artifacts         = flag.String("artifacts", "", "a directory for logs")
)

// Cluster API's own end-to-end test of the quick start, with other waits for the control plane than those for kubeadm's, and with the owners and finalizers
// of Kindred's kinds.
var _ = Describe("the quick start", func() {
	e2e.QuickStartSpec(context.Background(), func() e2e.QuickStartSpecInput {
		kinds := runtime.NewScheme()
		framework.TryAddDefaultSchemes(kinds)
		proxy := framework.NewClusterProxy("management", *kubeconfig, kinds)
		DeferCleanup(func() { proxy.Dispose(context.Background()) })
		wait := []string{"5m", "500ms"}
		return e2e.QuickStartSpecInput{
			E2EConfig: &clusterctl.E2EConfig{
				Variables: map[string]string{e2e.KubernetesVersion: *kubernetesVersion},
				Intervals: map[string][]string{
					"default/wait-cluster": wait, "default/wait-control-plane": wait, "default/wait-worker-nodes": wait, "default/wait-delete-cluster": wait,
				},
			},
			ClusterctlConfigPath: *clusterctlConfig, InfrastructureProvider: infrastructure, Flavor: flavor, WorkerMachineCount: workers,
			BootstrapClusterProxy: proxy, ArtifactFolder: *artifacts,
			ControlPlaneWaiters: clusterctl.ControlPlaneWaiters{
				WaitForControlPlaneInitialized:   waitFor(clusterv1.ClusterControlPlaneInitializedCondition),
				WaitForControlPlaneMachinesReady: waitFor(clusterv1.ClusterControlPlaneAvailableCondition, clusterv1.ClusterControlPlaneMachinesReadyCondition),
			},
			PostMachinesProvisioned: holdsTheTable,
		}
	})
})

// holdsTheTable makes the checks that upstream makes after the machines are provisioned.
func holdsTheTable(proxy framework.ClusterProxy, namespace, cluster string) {
	ctx, own := context.Background(), clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
	owners, core := kindredOwners(false), framework.CoreFinalizersAssertionWithLegacyClusters
	if *flavor == "topology" {
		owners, core = kindredOwners(true), framework.CoreFinalizersAssertionWithClassyClusters
	}
	By("Removing all owner references")
	framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, own, owners...)
	By("Changing the versions in all owner references")
	framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, own, owners...)
	By("Removing all finalizers")
	framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, own, core, framework.ExpFinalizersAssertion, kindredFinalizers)
	By("Watching resourceVersions")
	framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: own})
}

// waitFor returns a wait until conditions of the Cluster are true.
func waitFor(types ...string) clusterctl.Waiter {
	return func(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, result *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
		for _, t := range types {
			Eventually(func() (bool, error) {
				now := &clusterv1.Cluster{}
				err := input.ClusterProxy.GetClient().Get(ctx, client.ObjectKeyFromObject(result.Cluster), now)
				return conditions.IsTrue(now, t), err
			}, input.WaitForControlPlaneIntervals...).Should(BeTrue(), t)
		}
	}
}
