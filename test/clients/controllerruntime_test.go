// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/kindredtest"
)

const controllerRuntime = "sigs.k8s.io/controller-runtime@v0.25.2"

// suite is a package of controller-runtime with tests against an API server. Tests that cannot pass
// on a cluster with other clients are skipped.
type suite struct {
	name string
	// skip are arguments of go test.
	skip []string
}

var suites = []suite{
	{name: "builder"},
	// A real cluster also creates the default ServiceAccount in each namespace.
	{name: "cache", skip: []string{"-ginkgo.skip=Should list serviceaccounts and find exactly one"}},
	{name: "client"},
	// This case disables aggregated discovery by a flag of the server that it would start itself.
	{name: "client/apiutil", skip: []string{"-skip=/aggregatedDiscovery=false"}},
	{name: "cluster"},
	{name: "controller"},
	{name: "controller/controllerutil"},
	{name: "handler"},
	{name: "internal/controller"},
	{name: "internal/recorder"},
	{name: "manager"},
	// This case creates its objects a second time with the same names, because it expects a new
	// cluster.
	{name: "manager/internal/integration", skip: []string{"-ginkgo.skip=controller warmup not enabled"}},
	{name: "metrics/filters"},
	{name: "reconcile"},
	{name: "source"},
	{name: "webhook"},
}

// idle are the bindings without which the cluster's components do nothing. The suite is written for
// envtest, where no controller and no scheduler runs: it counts all ConfigMaps and Pods, and
// updates Deployments and Nodes without retrying conflicts.
var idle = []string{
	"system:controller:deployment-controller", "system:controller:replicaset-controller", "system:controller:root-ca-cert-publisher",
	"system:controller:endpoint-controller", "system:controller:endpointslice-controller",
	"system:controller:node-controller",
	"system:kube-scheduler",
}

// TestControllerRuntime runs controller-runtime's own suites, unmodified, each against its own
// existing cluster.
func TestControllerRuntime(t *testing.T) {
	source := copyModule(t, controllerRuntime)
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) {
			cluster := kindredtest.Start(t, kindredtest.SimulatedNodes(0))
			makeIdle(t, cluster)
			goTool(t, source, []string{"USE_EXISTING_CLUSTER=true", "KUBECONFIG=" + cluster.Kubeconfig()},
				append([]string{"test", "-count=1", "./pkg/" + suite.name}, suite.skip...)...)
		})
	}
}

// copyModule makes a writable copy of a module's source, and returns its directory.
func copyModule(t *testing.T, module string) string {
	t.Helper()
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(goTool(t, ".", nil, "mod", "download", "-json", module)), &downloaded); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs(filepath.Join("bin", filepath.Base(downloaded.Dir)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(folder, os.DirFS(downloaded.Dir)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// makeIdle removes the permissions of controllers and scheduler, and the objects that they have
// created.
func makeIdle(t *testing.T, cluster *kindredtest.Cluster) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	for _, name := range idle {
		if err := client.RbacV1().ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	configMaps, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configMaps.Items {
		if strings.HasPrefix(c.Name, "kube-root-ca") {
			if err := client.CoreV1().ConfigMaps(c.Namespace).Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
