// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// TestTemplatesOf has the places in which the kinds of both versions of the API name templates.
func TestTemplatesOf(t *testing.T) {
	for name, tt := range map[string]struct {
		object string
		want   []string
	}{
		"class": {`
spec:
  infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevClusterTemplate, name: a}}
  controlPlane:
    templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: b}
    machineInfrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevMachineTemplate, name: c}}
    healthCheck: {remediation: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevRemediationTemplate, name: no}}}
  workers: {machineDeployments: [{bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: d}}}]}
  patches: [{definitions: [{selector: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate}}]}]
`, []string{"DevClusterTemplate a", "DevMachineTemplate c", "KubeadmConfigTemplate d", "KubeadmControlPlaneTemplate b"}},
		"class in v1beta1": {`
spec:
  infrastructure: {ref: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DevClusterTemplate, name: a}}
  workers:
    machineDeployments:
    - template: {bootstrap: {ref: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: d}}}
      machineHealthCheck: {remediationTemplate: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DevRemediationTemplate, name: no}}
`, []string{"DevClusterTemplate a", "KubeadmConfigTemplate d"}},
		"MachineDeployment": {`
spec: {template: {spec: {
  bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: d}},
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: c}}}}
`, []string{"DevMachineTemplate c", "KubeadmConfigTemplate d"}},
		"control plane": {`
spec: {machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: c}}}}
`, []string{"DevMachineTemplate c"}},
		"another project's": {`spec: {a: {apiVersion: example.com/v1, kind: DevMachineTemplate, name: c}, b: [{kind: DevMachineTemplate, name: c}]}`, nil},
		"no spec":           {`metadata: {}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tt.object), &object.Object); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, template := range TemplatesOf(object) {
				got = append(got, template.Kind+" "+template.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNamesTemplates(t *testing.T) {
	for kind, want := range map[schema.GroupKind]bool{
		ClusterClass:                                 true,
		{Group: Core, Kind: "MachineDeployment"}:     true,
		{Group: Core, Kind: "MachineSet"}:            true,
		{Group: ControlPlane, Kind: "XControlPlane"}: true,
		Cluster: false,
		{Group: Core, Kind: "MachineHealthCheck"}:            false,
		{Group: ControlPlane, Kind: "XControlPlaneTemplate"}: false,
		{Group: "apps", Kind: "MachineSet"}:                  false,
	} {
		if NamesTemplates(kind) != want {
			t.Errorf("%v: %v", kind, !want)
		}
	}
}
