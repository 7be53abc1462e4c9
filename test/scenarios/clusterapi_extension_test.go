// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/servers"
)

// extensionConfig registers upstream's test extension for Clusters of all namespaces.
const extensionConfig = `
apiVersion: runtime.cluster.x-k8s.io/v1beta2
kind: ExtensionConfig
metadata:
  name: hooks
  annotations: {runtime.cluster.x-k8s.io/inject-ca-from-secret: test-extension-system/test-extension-webhook-service-cert}
spec:
  settings: {extensionConfigName: hooks, disableInPlaceUpdates: "true", defaultAllHandlersToBlocking: "false"}
  clientConfig: {service: {name: test-extension-webhook-service, namespace: test-extension-system, port: 443}}
`

// TestClusterAPIExtension: an ExtensionConfig has no owners, and stays when a Cluster goes whose hooks it was called for. An owner that somebody gives it
// is found.
func TestClusterAPIExtension(t *testing.T) {
	m := newManagement(t)
	extension, err := servers.BuildClusterAPIExtension(t.Context(), "../servers")
	if err != nil {
		t.Fatal(err)
	}
	m.install(extension)
	owners := m.watchOwners()
	m.apply(extensionConfig)
	m.kubectl("wait", "extensionconfig", "hooks", "--for=condition=Discovered", "--timeout", patience.String())
	m.createClassy(1, 1)
	m.called("BeforeClusterCreate", "AfterControlPlaneInitialized")
	m.hasNoOwners("extensionconfig/hooks")
	owners.good("while it is created")

	m.own("extensionconfig/hooks", "[", "namespace/"+m.namespace)
	m.finds("undocumented-owners: ExtensionConfig hooks")
	m.kubectl("patch", "extensionconfig", "hooks", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)
	m.finds()
	owners.pardon("while it has an owner")

	m.goes("classy")
	m.called("BeforeClusterDelete")
	m.hasNoOwners("extensionconfig/hooks")
	owners.good("while it is deleted")
}

// called fails the test unless the extension has been called for hooks of the Cluster.
func (m *management) called(hooks ...string) {
	m.Helper()
	calls := m.jsonpath("{.data}", "configmap", "classy-hooks-test-extension-hookresponses")
	for _, hook := range hooks {
		if !strings.Contains(calls, hook+"-actualResponseStatus") {
			m.Errorf("the extension was not called for %s: %s", hook, calls)
		}
	}
}

func (m *management) hasNoOwners(object string) {
	m.Helper()
	if owners := m.jsonpath("{.metadata.ownerReferences}", object); owners != "" {
		m.Errorf("%s has owners: %s", object, owners)
	}
}
