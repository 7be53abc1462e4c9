// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/yaml"

	"github.com/kindred-project/kindred/clusterapi/config"
)

// contractFields are the fields that the contract v1beta2 names for each kind, with their types. Kindred has no failure domains, and no
// control plane without nodes, for which the contract names further ones.
var contractFields = map[string]map[string]string{
	"KindredCluster": {
		"spec.controlPlaneEndpoint.host": "string", "spec.controlPlaneEndpoint.port": "integer",
		"status.initialization.provisioned": "boolean", "status.conditions": "array",
	},
	"KindredMachine": {
		"spec.providerID": "string", "status.addresses": "array", "status.initialization.provisioned": "boolean", "status.conditions": "array",
	},
	"KindredConfig": {
		"status.dataSecretName": "string", "status.initialization.dataSecretCreated": "boolean", "status.conditions": "array",
	},
	"KindredControlPlane": {
		"spec.replicas": "integer", "spec.version": "string", "spec.rollout.after": "string",
		"spec.machineTemplate.metadata.labels": "object", "spec.machineTemplate.metadata.annotations": "object",
		"spec.machineTemplate.spec.infrastructureRef.apiGroup": "string", "spec.machineTemplate.spec.infrastructureRef.kind": "string",
		"spec.machineTemplate.spec.infrastructureRef.name":                  "string",
		"spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds":        "integer",
		"spec.machineTemplate.spec.deletion.nodeVolumeDetachTimeoutSeconds": "integer",
		"spec.machineTemplate.spec.deletion.nodeDeletionTimeoutSeconds":     "integer",
		"spec.machineTemplate.spec.readinessGates":                          "array", "spec.machineTemplate.spec.taints": "array",
		"status.selector": "string", "status.replicas": "integer", "status.readyReplicas": "integer", "status.availableReplicas": "integer",
		"status.upToDateReplicas": "integer", "status.version": "string", "status.versions": "array",
		"status.initialization.controlPlaneInitialized": "boolean", "status.conditions": "array",
	},
}

// definitions returns the definitions of all providers, by kind.
func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, p := range providers {
		components, err := release{version: "v0.1.0", kubernetes: "v1.37.1", image: "example.com/manager"}.compose(p)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(components), "---\n") {
			d := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal([]byte(document), d); err != nil {
				t.Fatal(err)
			}
			if d.Kind == "CustomResourceDefinition" {
				all[d.Spec.Names.Kind] = d
			}
		}
	}
	return all
}

// TestDefinitions: the definitions are as the contract v1beta2 demands: their names, scope, lists and templates, the label with the versions that fulfil
// it, and the fields.
func TestDefinitions(t *testing.T) {
	all := definitions(t)
	if len(all) != 2*len(contractFields) {
		t.Errorf("%d definitions, want %d", len(all), 2*len(contractFields))
	}
	for kind, d := range all {
		if want := contract.CalculateCRDName(d.Spec.Group, kind); d.Name != want {
			t.Errorf("definition %s, want the name %s", d.Name, want)
		}
		if d.Spec.Scope != apiextensionsv1.NamespaceScoped || d.Spec.Names.ListKind != kind+"List" || !slices.Contains(d.Spec.Names.Categories, "cluster-api") {
			t.Errorf("%s: scope %s, names %+v", kind, d.Spec.Scope, d.Spec.Names)
		}
		checkContractVersions(t, d)
		for field, want := range map[string]string{"apiVersion": "string", "kind": "string", "metadata": "object"} {
			checkField(t, d, field, want)
		}
	}
	for kind, fields := range contractFields {
		if all[kind] == nil || all[kind+"Template"] == nil {
			t.Fatalf("there is no definition of %s or of its template", kind)
		}
		for field, want := range fields {
			checkField(t, all[kind], field, want)
		}
		if all[kind].Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s has no subresource status", kind)
		}
		for _, field := range []string{"spec.template.metadata.labels", "spec.template.metadata.annotations", "spec.template.spec"} {
			checkField(t, all[kind+"Template"], field, "object")
		}
	}
}

// checkContractVersions: the label of the contract names versions that are served.
func checkContractVersions(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for label := range strings.SplitSeq(d.Labels["cluster.x-k8s.io/v1beta2"], "_") {
		if !slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == label && v.Served }) {
			t.Errorf("%s does not serve the version %q of its label", d.Name, label)
		}
	}
}

// checkField: a definition has a field of a type, in each of its versions.
func checkField(t *testing.T, d *apiextensionsv1.CustomResourceDefinition, path, want string) {
	t.Helper()
	for _, v := range d.Spec.Versions {
		at := *v.Schema.OpenAPIV3Schema
		for name := range strings.SplitSeq(path, ".") {
			at = at.Properties[name]
		}
		if at.Type != want {
			t.Errorf("%s, version %s: %s has the type %q, want %q", d.Name, v.Name, path, at.Type, want)
		}
	}
}

// TestScale: the definition of a control plane has the subresource scale.
func TestScale(t *testing.T) {
	scale := definitions(t)["KindredControlPlane"].Spec.Versions[0].Subresources.Scale
	if scale == nil || scale.SpecReplicasPath != ".spec.replicas" || scale.StatusReplicasPath != ".status.replicas" ||
		scale.LabelSelectorPath == nil || *scale.LabelSelectorPath != ".status.selector" {
		t.Errorf("scale: %+v", scale)
	}
}

// TestVersionIsSemantic: the version of a control plane is a semantic version, with or without the v.
func TestVersionIsSemantic(t *testing.T) {
	spec := definitions(t)["KindredControlPlane"].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	pattern, err := regexp.Compile(spec.Properties["version"].Pattern)
	if err != nil {
		t.Fatal(err)
	}
	for v, valid := range map[string]bool{
		"v1.37.1": true, "1.37.1": true, "v1.38.0-alpha.1+build": true, "v1.37": false, "latest": false, "": false, "v01.2.3": false, "xv1.37.1": false, "v1.37.1 ": false,
	} {
		if pattern.MatchString(v) != valid {
			t.Errorf("%q is valid: %v", v, !valid)
		}
	}
}

// TestMetadata: the metadata of a release are as clusterctl demands, and name the contract of the definitions for the version of the release.
func TestMetadata(t *testing.T) {
	text, err := config.Files.ReadFile("metadata.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var metadata clusterctlv1.Metadata
	if err := yaml.UnmarshalStrict(text, &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.APIVersion != clusterctlv1.GroupVersion.String() || metadata.Kind != "Metadata" {
		t.Errorf("type %+v", metadata.TypeMeta)
	}
	series := metadata.GetReleaseSeriesForVersion(version.MustParseSemantic("v0.1.0"))
	if series == nil || "cluster.x-k8s.io/"+series.Contract != contractLabel {
		t.Errorf("release series of v0.1.0: %+v, and the definitions have the label %s", series, contractLabel)
	}
}
