// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func TestEnv(t *testing.T) {
	from := func(source v1.EnvVarSource) []v1.EnvVar { return []v1.EnvVar{{Name: "A", ValueFrom: &source}} }
	fieldRef := func(path string) []v1.EnvVar {
		return from(v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}})
	}
	resourceRef := func(name, divisor string) []v1.EnvVar {
		return from(v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: name, Divisor: resource.MustParse(divisor)}})
	}
	for name, test := range map[string]struct {
		env  []v1.EnvVar
		want []string
	}{
		"any printable name": {env: []v1.EnvVar{{Name: "data-1"}, {Name: "9.lives"}}},
		"no name":            {env: []v1.EnvVar{{}}, want: []string{`env[0].name: Required value`}},
		"a name with =":      {env: []v1.EnvVar{{Name: "A=B"}}, want: []string{`env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='`}},
		"no source": {
			env:  from(v1.EnvVarSource{}),
			want: []string{"env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"},
		},
		"two sources": {
			env: from(v1.EnvVarSource{
				ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "c"}, Key: "k"},
				SecretKeyRef:    &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "S"}, Key: ""},
			}),
			want: []string{
				`env[0].valueFrom.secretKeyRef.name: Invalid value: "S": ` + subdomain,
				`env[0].valueFrom.secretKeyRef.key: Required value`,
				`env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time`,
			},
		},
		"a value and a source": {
			env:  []v1.EnvVar{{Name: "A", Value: "b", ValueFrom: fieldRef("status.podIP")[0].ValueFrom}},
			want: []string{"env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"},
		},
		"a label":                 {env: fieldRef("metadata.labels['app.kubernetes.io/name']")},
		"an annotation, any case": {env: fieldRef("metadata.annotations['Example.com/Owner']")},
		"a bad label":             {env: fieldRef("metadata.labels['a b']"), want: []string{`env[0].valueFrom.fieldRef: Invalid value: "a b": ` + qualified}},
		"deprecated field paths":  {env: fieldRef("spec.host")},
		"all labels, which are not a single value": {
			env:  fieldRef("metadata.labels"),
			want: []string{`env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`},
		},
		"unknown field": {
			env:  fieldRef("spec.color"),
			want: []string{`env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.color": error converting fieldPath: field label not supported: spec.color`},
		},
		"key of a field that is not a map": {
			env:  fieldRef("metadata.name['x']"),
			want: []string{`env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['x']": error converting fieldPath: field label does not support subscript: metadata.name['x']`},
		},
		"unknown API version": {
			env:  from(v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"}}),
			want: []string{`env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2`},
		},
		"a resource":     {env: resourceRef("limits.memory", "1Mi")},
		"huge pages":     {env: resourceRef("requests.hugepages-2Mi", "1Mi")},
		"a CPU in bytes": {env: resourceRef("limits.cpu", "1Mi"), want: []string{`env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource`}},
		"memory in milli": {
			env:  resourceRef("limits.memory", "1m"),
			want: []string{`env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource`},
		},
		"unknown resource": {
			env:  resourceRef("limits.light", "1"),
			want: []string{`env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.light": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`},
		},
		"a file": {
			env: from(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{Key: "", VolumeName: "V", Path: "../x"}}),
			want: []string{
				`env[0].valueFrom.fileKeyRef.key: Required value`,
				`env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "V": ` + label,
				`env[0].valueFrom.fileKeyRef.path: Invalid value: "../x": must not contain '..'`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			checktest.Diff(t, test.want, check.Run(func(c *check.Checker) { ValidateEnv(c, test.env, field.NewPath("env")) }))
		})
	}
}

func TestEnvFrom(t *testing.T) {
	createCases{
		"sources": {change: first(func(c *v1.Container) {
			c.EnvFrom = []v1.EnvFromSource{
				{Prefix: "A_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
				{Prefix: "A=", ConfigMapRef: &v1.ConfigMapEnvSource{}},
				{},
			}
		}), want: []string{
			`spec.containers[0].envFrom[1].prefix: Invalid value: "A=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
			`spec.containers[0].envFrom[1].configMapRef.name: Required value`,
			"spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
		}},
		"a file in another volume than an emptyDir": {change: func(pod *v1.Pod) {
			withVolume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}})(pod)
			for _, volume := range []string{"data", "none"} {
				pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{
					FileKeyRef: &v1.FileKeySelector{Key: "A", VolumeName: volume, Path: "env"},
				}})
			}
		}, want: []string{
			`spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "data": referenced volume must be of type emptyDir`,
			`spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Not found: "none"`,
		}},
	}.run(t)
}
