// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// TestPrintCluster: the parts of a Cluster are in the order in which its users think of them.
func TestPrintCluster(t *testing.T) {
	part := func(o ownership.TreeObject, part ownership.ClusterPart) ownership.TreeObject {
		o.ClusterPart = &part
		return o
	}
	root := part(treeOf("Cluster", "c"), ownership.ClusterPart{Conditions: []metav1.Condition{
		{Type: "WorkersAvailable", Status: "Unknown", Reason: "Waiting"},
		{Type: "RollingOut", Status: "True", Reason: "RollingOut", Message: "* MachineDeployment w:\n  * Rolling out 1 of 2"},
	}})
	root.Finalizers = []string{"cluster.cluster.x-k8s.io", "example.com/hold"}
	tree := &ownership.OwnershipTree{}
	tree.Status.Object = root.ObjectReference
	tree.Status.Objects = []ownership.TreeObject{
		root, treeOf("Secret", "a", "c"),
		part(treeOf("AMachineDeployment", "w", "c"), ownership.ClusterPart{Role: ownership.RoleWorkers, Version: "v1.36.0", Replicas: new(int32(2)), ReadyReplicas: new(int32(1)), UpToDateReplicas: new(int32(0))}),
		part(treeOf("Machine", "m", "w"), ownership.ClusterPart{Role: ownership.RoleWorkers, Node: "n"}),
		part(treeOf("ControlPlane", "k", "c"), ownership.ClusterPart{Role: ownership.RoleControlPlane, Version: "v1.37.0", Replicas: new(int32(1)), ReadyReplicas: new(int32(1))}),
		part(treeOf("DevCluster", "d", "c"), ownership.ClusterPart{Role: ownership.RoleInfrastructure}),
	}
	t.Setenv("COLUMNS", strconv.Itoa(tableWidth))
	got := printed(func(cmd *cobra.Command) { treePrinter{clock: clocktesting.NewFakePassiveClock(noon)}.print(cmd, tree) })
	want := `Namespace shop
OBJECT                   CONTROLLED  READINESS  AGE  NOTES
Cluster/c *                          Ready      60m  not WorkersAvailable: Waiting; RollingOut: *
                                                     MachineDeployment w: * Rolling out 1 of 2;
                                                     finalizer example.com/hold
├─ DevCluster/d          yes         Ready      60m  infrastructure
├─ ControlPlane/k        yes         Ready      60m  control plane, v1.37.0, 1 of 1 ready
├─ AMachineDeployment/w  yes         Ready      60m  workers, v1.36.0, 1 of 2 ready, 0 up to date
│  └─ Machine/m          yes         Ready      60m  workers, node n
└─ Secret/a              yes         Ready      60m
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
