// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package httpget

import (
	"net/url"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestURLs(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b?c=d": "http://10.0.0.1:80/a/b?c=d", "": "http://10.0.0.1:80", "a": "http://10.0.0.1:80/a", "/%zz": "http://10.0.0.1:80/%25zz",
	} {
		request, err := NewRequest(t.Context(), &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(80)}, &v1.Container{}, "10.0.0.1", "test")
		if err != nil || request.URL.String() != want {
			t.Errorf("%q: got %v, %v; want %s", path, request.URL, err, want)
		}
	}
	request, err := NewRequest(t.Context(), &v1.HTTPGetAction{Host: "::1", Scheme: "HTTPS", Port: intstr.FromInt32(443)}, &v1.Container{}, "10.0.0.1", "test")
	if err != nil || request.URL.String() != (&url.URL{Scheme: "https", Host: "[::1]:443"}).String() {
		t.Errorf("got %v, %v", request.URL, err)
	}
}

func TestPort(t *testing.T) {
	container := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}
	for _, tc := range []struct {
		port intstr.IntOrString
		want int
		err  string
	}{
		{intstr.FromInt32(80), 80, ""},
		{intstr.FromString("web"), 8080, ""},
		{intstr.FromString("none"), 0, `port "none" not found`},
		{intstr.FromInt32(0), 0, "invalid port number: 0"},
		{intstr.FromInt32(65536), 0, "invalid port number: 65536"},
	} {
		got, err := Port(tc.port, container)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != tc.want || message != tc.err {
			t.Errorf("%v: got %d, %q", tc.port, got, message)
		}
	}
}
