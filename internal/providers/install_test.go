// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred"
)

// components is a provider with a definition, a webhook's certificate and a manager.
const components = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: some-system}
spec:
  selector: {matchLabels: {app: manager}}
  template: {metadata: {labels: {app: manager}}, spec: {containers: [{name: manager, image: manager}]}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving, namespace: some-system}
spec: {dnsNames: [hook.some-system.svc], secretName: serving-secret}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks, annotations: {cert-manager.io/inject-ca-from: some-system/serving}}
webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {name: hook, namespace: some-system}}}]
---
` + namespaceOnly

// machines is a provider whose manager makes machines of its host.
const machines = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: machines, namespace: some-system}
spec:
  selector: {matchLabels: {app: machines}}
  template: {metadata: {labels: {app: machines}}, spec: {containers: [{name: machines, image: manager, args: [--a, "--machines-dir=${MACHINES:=/var/lib/kindred-machines}", --b]}]}}
---
` + namespaceOnly

const inventoryDefinition = definition + `spec:
  group: clusterctl.cluster.x-k8s.io
  names: {kind: Provider, plural: providers, singular: provider, listKind: ProviderList}
  scope: Namespaced
  versions:
  - {name: v1alpha3, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestInstall: a release is installed in a cluster, with its certificate and its entry in the inventory. What is changed is mended, the
// certificate stays, and a provider that is newer is left alone.
func TestInstall(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"cluster-api/v1.14.2/core-components.yaml":                     components,
		"infrastructure-kindred/v0.1.0/infrastructure-components.yaml": machines,
		"clusterctl-api.yaml":                                          inventoryDefinition,
	})
	release, err := Open(dir, withoutVariables)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kindred.Start(t.Context(), kindred.Options{DataDir: t.TempDir(), NoNode: true, SimulatedNodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	c, err := client.New(cluster.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var steps, notices []string
	installer := &Installer{
		Client: c, Clock: clock.RealClock{},
		Progress: func(step string, _ time.Duration) { steps = append(steps, step) },
		Notice:   func(line string) { notices = append(notices, line) },
	}
	install := func() {
		t.Helper()
		if err := installer.Install(t.Context(), release); err != nil {
			t.Fatal(err)
		}
	}
	get := func(o client.Object, namespace, name string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	install()
	if !slices.Equal(steps, []string{"objects of Cluster API", "managers of Cluster API"}) {
		t.Errorf("steps %q", steps)
	}
	manager := &appsv1.Deployment{}
	get(manager, "some-system", "manager")
	if manager.Status.AvailableReplicas != 1 || manager.Labels[providerLabel] != "cluster-api" {
		t.Errorf("manager %+v", manager)
	}
	entry := &unstructured.Unstructured{}
	entry.SetGroupVersionKind(inventoryKind)
	get(entry, "some-system", "cluster-api")
	if field(t, entry, "providerName") != "cluster-api" || field(t, entry, "type") != "CoreProvider" || field(t, entry, "version") != "v1.14.2" {
		t.Errorf("inventory %v", entry)
	}
	bundle := func() string {
		t.Helper()
		hooks := &unstructured.Unstructured{}
		hooks.SetGroupVersionKind(validating)
		get(hooks, "", "hooks")
		all, _, _ := unstructured.NestedSlice(hooks.Object, "webhooks")
		found, _, _ := unstructured.NestedString(all[0].(map[string]any), "clientConfig", "caBundle")
		return found
	}
	before := bundle()

	manager.Spec.Template.Spec.Containers[0].Image = "other"
	if err := c.Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	install()
	get(manager, "some-system", "manager")
	if image := manager.Spec.Template.Spec.Containers[0].Image; image != "manager" {
		t.Errorf("the manager has the image %s", image)
	}
	if before == "" || bundle() != before {
		t.Error("the certificate was replaced")
	}

	_ = unstructured.SetNestedField(entry.Object, "v1.15.0", "version")
	if err := errors.Join(c.Update(t.Context(), entry), c.Delete(t.Context(), manager)); err != nil {
		t.Fatal(err)
	}
	install()
	if dirs, err := installer.MachinesDirs(t.Context()); err != nil || !slices.Equal(dirs, []string{"/var/lib/kindred-machines"}) {
		t.Errorf("directories of machines of what is installed: %q, %v", dirs, err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "cluster-api stays v1.15.0, which is newer than v1.14.2") {
		t.Errorf("notices %q", notices)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(manager), manager); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the manager of a newer provider: %v", err)
	}
}

// validating is the kind of the configuration in components.
var validating = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
