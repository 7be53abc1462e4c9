// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"fmt"
	"strings"
	"testing"
)

// TestStorageVersionMigration: custom resources are rewritten in the current storage version, after
// which the former version can be removed.
func TestStorageVersionMigration(t *testing.T) {
	s := withoutNode(t)
	definition := func(versions string) string {
		return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: relics.migration.example.com}
spec:
  group: migration.example.com
  scope: Namespaced
  names: {plural: relics, singular: relic, kind: Relic}
  versions:
%s`, versions)
	}
	version := func(name string, storage bool) string {
		return fmt.Sprintf("  - {name: %s, served: true, storage: %v, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n", name, storage)
	}
	s.apply(definition(version("v1", true)))
	t.Cleanup(func() { s.try("delete", "crd", "relics.migration.example.com") })
	s.kubectl("wait", "--for=condition=Established", "crd/relics.migration.example.com")
	for _, name := range []string{"one", "two"} {
		s.apply(fmt.Sprintf("apiVersion: migration.example.com/v1\nkind: Relic\nmetadata: {name: %s}\nage: 7\n", name))
	}
	s.apply(definition(version("v1", false) + version("v2", true)))
	s.eventually("both versions are stored", func() error { return s.stored("v1 v2") })
	s.refusedInput(definition(version("v2", true)), []string{"v1"}, "apply", "-f", "-")

	migrate := func(name, group, resource string) {
		s.apply(fmt.Sprintf(`
apiVersion: storagemigration.k8s.io/v1
kind: StorageVersionMigration
metadata: {name: %s}
spec: {resource: {group: %q, resource: %s}}
`, name, group, resource))
		t.Cleanup(func() { s.try("delete", "storageversionmigration", name) })
	}
	written := func() string {
		t.Helper()
		return s.kubectl("get", "relics.v1.migration.example.com", "-o", "jsonpath={.items[*].metadata.resourceVersion}")
	}
	before := written()
	migrate("relics", "migration.example.com", "relics")
	s.kubectl("wait", "--for=condition=Succeeded", "storageversionmigration/relics", "--timeout=60s")
	s.kubectl("wait", "--for=condition=Running=False", "storageversionmigration/relics", "--timeout=60s")
	s.eventually("one version is stored", func() error { return s.stored("v2") })
	if after := written(); strings.Fields(after)[0] == strings.Fields(before)[0] {
		t.Errorf("written at %s before, and still at %s", before, after)
	}
	s.apply(definition(version("v2", true)))
	if got := s.kubectl("get", "relics.v2.migration.example.com", "-o", "jsonpath={.items[*].apiVersion} {.items[*].age}"); got != "migration.example.com/v2 migration.example.com/v2 7 7" {
		t.Errorf("the relics are %q", got)
	}

	// Migrating a built-in kind changes nothing, because it already has the current version.
	s.kubectl("create", "configmap", "kept", "--from-literal=a=b")
	before = s.jsonpath("{.metadata.resourceVersion} {.data}", "configmap", "kept")
	migrate("configmaps", "", "configmaps")
	s.kubectl("wait", "--for=condition=Succeeded", "storageversionmigration/configmaps", "--timeout=60s")
	if after := s.jsonpath("{.metadata.resourceVersion} {.data}", "configmap", "kept"); after != before {
		t.Errorf("was %s, is %s", before, after)
	}
	migrate("cannot", "", "componentstatuses")
	s.kubectl("wait", "--for=condition=Failed", "storageversionmigration/cannot", "--timeout=60s")
}

func (s *session) stored(want string) error {
	if got := s.jsonpath("{.status.storedVersions[*]}", "crd", "relics.migration.example.com"); got != want {
		return fmt.Errorf("stored are %s", got)
	}
	return nil
}

// TestPolicyIsTypeChecked: fields that do not exist are reported in an expression.
func TestPolicyIsTypeChecked(t *testing.T) {
	s := withoutNode(t)
	policy := func(expression string) {
		s.apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: checked.example.com}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: %q}]
`, expression))
	}
	t.Cleanup(func() { s.try("delete", "validatingadmissionpolicy", "checked.example.com") })
	warnings := func(generation string) string {
		t.Helper()
		s.kubectl("wait", "--for=jsonpath={.status.observedGeneration}="+generation, "validatingadmissionpolicy/checked.example.com", "--timeout=60s")
		return s.jsonpath("{.status.typeChecking.expressionWarnings}", "validatingadmissionpolicy", "checked.example.com")
	}
	policy("object.spec.replicass > 1")
	if got := warnings("1"); !strings.Contains(got, "spec.validations[0].expression") || !strings.Contains(got, "undefined field 'replicass'") {
		t.Errorf("warnings %s", got)
	}
	policy("object.spec.replicas > 1")
	if got := warnings("2"); got != "" {
		t.Errorf("warnings %s", got)
	}
}
