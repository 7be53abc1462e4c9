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

// Cluster API's own end-to-end test of the quick start, with other waits for the control plane than those for kubeadm's.
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
		}
	})
})

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
