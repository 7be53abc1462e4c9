// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRequestsAreCounted: each request counts once, with what is known when it ends.
func TestRequestsAreCounted(t *testing.T) {
	present := func(f *fixture) { f.registry.present[name] = &runtimeapi.Image{Id: "id"} }
	secret := func(f *fixture) { // the image is there, for pods with a secret
		f.registry.password, f.secrets["s"] = "p", pullSecret("s", "s-uid", "p")
		f.ensure(podOf("owner", name, v1.PullIfNotPresent, "s"))
	}
	for _, test := range []struct {
		name   string
		before func(f *fixture)
		pod    *v1.Pod
		want   string
	}{
		{"present", present, podOf("p", name, v1.PullIfNotPresent), "IfNotPresent true false"},
		{"present, never pulled", present, podOf("p", name, v1.PullNever), "Never true false"},
		{"present, always pulled", present, podOf("p", name, v1.PullAlways), "Always ? true"},
		{"absent", nil, podOf("p", name, v1.PullIfNotPresent), "IfNotPresent false true"},
		{"absent, never pulled", nil, podOf("p", name, v1.PullNever), "Never false ?"},
		{"of a secret", secret, podOf("p", name, v1.PullIfNotPresent, "s"), "IfNotPresent true false"},
		{"of another pod's secret", secret, podOf("p", name, v1.PullIfNotPresent), "IfNotPresent true true"},
		{"of another pod's secret, never pulled", secret, podOf("p", name, v1.PullNever), "Never true true"},
		{"invalid name", nil, podOf("p", "UPPER", v1.PullAlways), "Always ? ?"},
		{"inspection fails", func(f *fixture) { f.registry.inspect = errors.New("boom") }, podOf("p", name, v1.PullIfNotPresent), "IfNotPresent ? ?"},
		{"pull fails", func(f *fixture) { f.registry.broken = errors.New("boom") }, podOf("p", name, v1.PullIfNotPresent), "IfNotPresent false true"},
		{"backs off", func(f *fixture) {
			f.registry.broken = errors.New("boom")
			f.ensure(podOf("p", name, v1.PullAlways))
		}, podOf("p", name, v1.PullAlways), "Always ? true"},
	} {
		f := newFixture(t)
		if test.before != nil {
			test.before(f)
		}
		var got []string
		f.options.Ensured = func(policy v1.PullPolicy, present, pull *bool) {
			got = append(got, fmt.Sprint(policy, " ", known(present), " ", known(pull)))
		}
		f.ensure(test.pod)
		if diff := cmp.Diff([]string{test.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func known(b *bool) string {
	if b == nil {
		return "?"
	}
	return fmt.Sprint(*b)
}
