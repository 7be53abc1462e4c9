// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
)

type fixedSlices []*discoveryv1.EndpointSlice

func (f fixedSlices) GetEndpointSlices(string, string) ([]*discoveryv1.EndpointSlice, error) {
	return f, nil
}

func sliceTo(pod *corev1.ObjectReference, addresses ...string) fixedSlices {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, TargetRef: pod})
	}
	return fixedSlices{slice}
}

// TestServiceProxy checks that the proxy connects only to pods of the Service's namespace, whatever
// its slices contain.
func TestServiceProxy(t *testing.T) {
	pods := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.0.7"}}},
	}).CoreV1()
	ctx := request.WithNamespace(context.Background(), "default")
	ref := func(namespace, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}
	}
	for name, tc := range map[string]struct {
		id     string
		slices fixedSlices
		want   string
		err    string
	}{
		"by name of the port":      {"web:http", sliceTo(ref("default", "web-1"), "10.244.0.7"), "//10.244.0.7:8080", ""},
		"over TLS":                 {"https:web:http", sliceTo(ref("default", "web-1"), "10.244.0.7"), "https://10.244.0.7:8080", ""},
		"the only valid endpoint":  {"web:http", sliceTo(ref("default", "web-1"), "10.244.0.8", "10.244.0.7", "169.254.169.254"), "//10.244.0.7:8080", ""},
		"another port":             {"web:admin", sliceTo(ref("default", "web-1"), "10.244.0.7"), "", `no endpoints available for service "web"`},
		"no slices":                {"web:http", nil, "", `no endpoints available for service "web"`},
		"pod of another namespace": {"web:http", sliceTo(ref("kube-system", "web-1"), "10.244.0.7"), "", `no endpoints available for service "web"`},
		"endpoint without pod":     {"web:http", sliceTo(nil, "10.244.0.7"), "", `no endpoints available for service "web"`},
		"deleted pod":              {"web:http", sliceTo(ref("default", "web-2"), "10.244.0.7"), "", `no endpoints available for service "web"`},
		"not the pod's address":    {"web:http", sliceTo(ref("default", "web-1"), "169.254.169.254"), "", `no endpoints available for service "web"`},
		"invalid name":             {"a:b:c:d", nil, "", `invalid service request "a:b:c:d"`},
	} {
		t.Run(name, func(t *testing.T) {
			x := &serviceProxy{families: []corev1.IPFamily{v4}, slices: tc.slices, pods: pods}
			got, err := x.location(ctx, tc.id)
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("%v, %v, want %s", got, err, tc.err)
				}
			case err != nil:
				t.Error(err)
			case got.String() != tc.want:
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
