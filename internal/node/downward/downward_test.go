// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package downward

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "uid",
			Labels:      map[string]string{"b": "2", "a": `1"`},
			Annotations: map[string]string{"example.com/x": "y"},
		},
		Spec: v1.PodSpec{
			NodeName: "n", ServiceAccountName: "sa",
			Containers: []v1.Container{{Name: "bare"}, {Name: "sized", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1250m"), v1.ResourceMemory: resource.MustParse("64Mi")},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("32Mi")},
			}}},
		},
		Status: v1.PodStatus{
			HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
			PodIP: "10.1.0.2", PodIPs: []v1.PodIP{{IP: "10.1.0.2"}, {IP: "fd01::2"}},
		},
	}
}

func TestField(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":                         "p",
		"metadata.namespace":                    "ns",
		"metadata.uid":                          "uid",
		"metadata.labels":                       "a=\"1\\\"\"\nb=\"2\"",
		"metadata.labels['b']":                  "2",
		"metadata.annotations['example.com/x']": "y",
		"metadata.annotations['none']":          "",
		"spec.nodeName":                         "n",
		"spec.serviceAccountName":               "sa",
		"status.hostIP":                         "10.0.0.1",
		"status.hostIPs":                        "10.0.0.1,fd00::1",
		"status.podIP":                          "10.1.0.2",
		"status.podIPs":                         "10.1.0.2,fd01::2",
	} {
		if got, err := Field(testPod(), path); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	if _, err := Field(testPod(), "spec.priority"); err == nil {
		t.Error("an unsupported field was accepted")
	}
}

func TestResource(t *testing.T) {
	allocatable := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("1Gi")}
	for _, tc := range []struct {
		name, container, resource, divisor, want string
		podLimit                                 string
	}{
		{name: "rounded up", container: "sized", resource: "limits.cpu", want: "2"},
		{name: "in units", container: "sized", resource: "limits.cpu", divisor: "1m", want: "1250"},
		{name: "request", container: "sized", resource: "requests.memory", divisor: "1Mi", want: "32"},
		{name: "missing limit is the node's", container: "bare", resource: "limits.cpu", want: "8"},
		{name: "missing limit is the pod's before the node's", container: "bare", resource: "limits.memory", divisor: "1Mi", podLimit: "128Mi", want: "128"},
		{name: "missing request is zero", container: "bare", resource: "requests.cpu", want: "0"},
		{name: "own container", resource: "limits.memory", divisor: "1Mi", want: "1024"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := testPod()
			if tc.podLimit != "" {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(tc.podLimit)}}
			}
			selector := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource}
			if tc.divisor != "" {
				selector.Divisor = resource.MustParse(tc.divisor)
			}
			got, err := Resource(pod, &pod.Spec.Containers[0], selector, allocatable)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	_, err := Resource(testPod(), nil, &v1.ResourceFieldSelector{ContainerName: "none", Resource: "limits.cpu"}, nil)
	if err == nil || err.Error() != "container none not found" {
		t.Errorf("got %v", err)
	}
}
