// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kustomize is a program in place of "kindred kubectl kustomize", which prints the core.
const kustomize = `#!/bin/sh
test "$1 $2" = "kubectl kustomize" && test -d "$3" && cat <<'EOF'
apiVersion: v1
kind: Namespace
metadata: {name: capi-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: capi-controller-manager}
spec: {template: {spec: {containers: [{name: manager, image: controller:main, imagePullPolicy: Always, args: ["--topology=${CLUSTER_TOPOLOGY:=false}"]}]}}}
EOF
`

// TestCore: a release has the core of the module's version, with the image that it contains.
func TestCore(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte(kustomize), 0o755); err != nil {
		t.Fatal(err)
	}
	var clusterctl strings.Builder
	r := release{core: program, kindred: program, coreImage: "example.com/core", out: t.TempDir()}
	if err := r.writeCore(&clusterctl); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(r.out, "cluster-api", "v1.*", "*.yaml"))
	if err != nil || len(files) != 2 || !strings.Contains(clusterctl.String(), files[0]) {
		t.Fatalf("files %v, %v; configuration %s", files, err, clusterctl.String())
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), topologyOn) {
		t.Errorf("no %s in\n%s", topologyOn, text)
	}
	if image := "image: example.com/core:" + filepath.Base(filepath.Dir(files[0])); !strings.Contains(string(text), image) || !strings.Contains(string(text), "IfNotPresent") {
		t.Errorf("no %s in\n%s", image, text)
	}
}

// TestCoreWithoutManager: a core whose manager cannot be found is refused.
func TestCoreWithoutManager(t *testing.T) {
	other := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other, annotations: {a: \"" + topologyOff + "\"}}\n"
	if _, err := coreComponents(other, "example.com/core:v1"); err == nil || !strings.Contains(err.Error(), "0 Deployments") {
		t.Errorf("error %v", err)
	}
}

// TestRepository: a release has what clusterctl asks for.
func TestRepository(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte(kustomize), 0o755); err != nil {
		t.Fatal(err)
	}
	r := release{
		manager: program, core: program, kindred: program, version: "v0.1.0", kubernetes: "v1.37.1", image: "example.com/manager", coreImage: "example.com/core",
		out: t.TempDir(),
	}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"clusterctl.yaml", "clusterctl-api.yaml", "manager.tar", "core.tar", "infrastructure-kindred/v0.1.0/cluster-template.yaml", "infrastructure-kindred/v0.1.0/clusterclass-kindred.yaml",
		"infrastructure-kindred/v0.1.0/metadata.yaml", "bootstrap-kindred/v0.1.0/metadata.yaml", "control-plane-kindred/v0.1.0/metadata.yaml",
	} {
		if _, err := os.Stat(filepath.Join(r.out, file)); err != nil {
			t.Error(err)
		}
	}
	for _, p := range providers {
		text, err := os.ReadFile(filepath.Join(r.out, p.label, r.version, p.components()))
		if err != nil {
			t.Fatal(err)
		}
		checkComponents(t, p, string(text))
	}
}

// checkComponents checks the rules for the components of a provider (clusterctl's provider contract).
func checkComponents(t *testing.T, p provider, text string) {
	t.Helper()
	kinds := map[string]int{}
	for document := range strings.SplitSeq(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		kinds[o.GetKind()]++
		if o.GetLabels()["cluster.x-k8s.io/provider"] != p.label {
			t.Errorf("%s: %s %s has the labels %v", p.name, o.GetKind(), o.GetName(), o.GetLabels())
		}
		switch o.GetKind() {
		case "CustomResourceDefinition":
			if o.GetLabels()[contractLabel] != "v1alpha1" {
				t.Errorf("%s: definition %s has no contract", p.name, o.GetName())
			}
		case "Deployment":
			checkManager(t, p, o)
		}
	}
	if kinds["Namespace"] != 1 || kinds["Deployment"] != 1 || kinds["CustomResourceDefinition"] < 2 {
		t.Errorf("%s has the objects %v", p.name, kinds)
	}
}

// checkManager: the container is called manager, and has the image of the release unless a variable names another one.
func checkManager(t *testing.T, p provider, o *unstructured.Unstructured) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%s: containers %v, %v", p.name, containers, err)
	}
	c := containers[0].(map[string]any)
	if c["name"] != "manager" || c["image"] != "${KINDRED_MANAGER_IMAGE:=example.com/manager:v0.1.0}" {
		t.Errorf("%s: container %v with the image %v", p.name, c["name"], c["image"])
	}
}
