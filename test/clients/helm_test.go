// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"strings"
	"testing"

	"github.com/kindred-project/kindred/kindredtest"
)

// TestHelm installs, upgrades, rolls back, tests and uninstalls a release with CRDs, hooks and
// waiting. At the end no object is left.
func TestHelm(t *testing.T) {
	cluster := kindredtest.Start(t)
	helm := newUser(t, cluster, build(t, "helm", "helm.sh/helm/v4/cmd/helm"))
	kubectl := newUser(t, cluster, build(t, "kubectl", "."))
	const wait = "--timeout=2m"

	helm.prints("STATUS: deployed", "install", "shop", "chart", "--wait", wait)
	kubectl.prints("green", "get", "configmap", "shop", "-o", "jsonpath={.data.colour}")
	kubectl.prints("2/2", "get", "deployment", "shop")
	kubectl.prints("green paint", "get", "order", "shop", "-o", "jsonpath={.spec.item}")
	kubectl.prints("Completed", "get", "pod", "shop-prepare")
	helm.prints("Phase:          Succeeded", "test", "shop", wait)

	helm.prints("REVISION: 2", "upgrade", "shop", "chart", "--set", "colour=blue,replicas=3", "--wait", wait)
	kubectl.prints("3/3", "get", "deployment", "shop")
	kubectl.prints("blue paint", "get", "order", "shop", "-o", "jsonpath={.spec.item}")
	helm.prints("colour: blue", "get", "values", "shop")

	helm.types("rollback", "shop", "1", "--wait", wait)
	kubectl.prints("green", "get", "configmap", "shop", "-o", "jsonpath={.data.colour}")
	kubectl.prints("2/2", "get", "deployment", "shop")
	helm.prints("Rollback to 1", "history", "shop")
	helm.prints("shop", "list", "-A")

	// Helm detects a change by another client, and overwrites it only with force.
	kubectl.types("scale", "deployment", "shop", "--replicas=1")
	helm.types("upgrade", "shop", "chart", "--set", "replicas=4", "--force-conflicts", "--wait", wait)
	kubectl.prints("4/4", "get", "deployment", "shop")

	helm.types("uninstall", "shop", "--wait", wait)
	if left := kubectl.types("get", "configmaps,services,deployments,orders", "-o", "name"); strings.Contains(left, "/shop") {
		t.Errorf("after uninstall there is still\n%s", left)
	}
	helm.types("install", "shop", "chart", "--dry-run=server")
}
