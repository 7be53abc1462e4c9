// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func newSlice(change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: "default"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func texts(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}

func addresses(kind discoveryv1.AddressType, addresses ...string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) {
		s.AddressType = kind
		s.Endpoints = []discoveryv1.Endpoint{{Addresses: addresses}}
	}
}

func hints(h discoveryv1.EndpointHints) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints = &h }
}

func TestValidateSlice(t *testing.T) {
	zones := make([]discoveryv1.ForZone, 9)
	for i := range zones {
		zones[i].Name = fmt.Sprint("z", i)
	}
	for name, tc := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		"plain":                       {func(*discoveryv1.EndpointSlice) {}, nil},
		"no type":                     {addresses(""), []string{"addressType: Required value", "endpoints[0].addresses: Required value: must contain at least 1 address"}},
		"unknown type":                {addresses("IP", "x"), []string{`addressType: Unsupported value: "IP": supported values: "FQDN", "IPv4", "IPv6"`}},
		"a name":                      {addresses(discoveryv1.AddressTypeFQDN, "a.example.com"), nil},
		"not a name":                  {addresses(discoveryv1.AddressTypeFQDN, "a"), []string{`endpoints[0].addresses[0]: Invalid value: "a": should be a domain with at least two segments separated by dots`}},
		"address of the other family": {addresses(discoveryv1.AddressTypeIPv4, "2001:db8::1"), []string{`endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address`}},
		"loopback": {addresses(discoveryv1.AddressTypeIPv6, "::1"), []string{
			`endpoints[0].addresses[0]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		"too many addresses": {addresses(discoveryv1.AddressTypeFQDN, make([]string, 101)...), append([]string{"endpoints[0].addresses: Too many: 101: must have at most 100 items"}, repeat(101)...)},
		"too many endpoints": {func(s *discoveryv1.EndpointSlice) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) }, []string{"endpoints: Too many: 1001: must have at most 1000 items"}},
		"too many ports":     {func(s *discoveryv1.EndpointSlice) { s.Ports = make([]discoveryv1.EndpointPort, 20001) }, []string{"ports: Too many: 20001: must have at most 20000 items"}},
		"too many zones":     {hints(discoveryv1.EndpointHints{ForZones: zones}), []string{"endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"}},
		"hints": {hints(discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "b"}, {Name: "b"}},
		}), []string{
			`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`,
			`endpoints[0].hints.forNodes[1].name: Duplicate value: "b"`}},
		"ports": {func(s *discoveryv1.EndpointSlice) {
			s.Ports = []discoveryv1.EndpointPort{{Name: new("a"), Protocol: new(corev1.Protocol("x"))}, {Name: new("a")}}
		}, []string{
			`ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"`,
			`ports[1].name: Duplicate value: "a"`, "ports[1].protocol: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(check.Run(func(c *check.Checker) { validateSlice(c, newSlice(tc.change), nil) }))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func repeat(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("endpoints[0].addresses[%d]: Required value", i))
	}
	return out
}

func TestValidateSliceUpdate(t *testing.T) {
	bad := func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"127.0.0.1"} }
	if errs := check.Run(func(c *check.Checker) { validateSliceUpdate(context.Background(), c, newSlice(bad), newSlice(bad)) }); len(errs) > 0 {
		t.Errorf("stored endpoints are validated again: %v", errs)
	}
	errs := check.Run(func(c *check.Checker) {
		validateSliceUpdate(context.Background(), c, newSlice(addresses(discoveryv1.AddressTypeIPv6, "2001:db8::1")), newSlice())
	})
	if diff := cmp.Diff([]string{`addressType: Invalid value: "IPv6": field is immutable`}, texts(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestGeneration(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		grows  bool
	}{
		"nothing":     {func(*discoveryv1.EndpointSlice) {}, false},
		"annotations": {func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"a": "b"} }, false},
		"labels":      {func(s *discoveryv1.EndpointSlice) { s.Labels = map[string]string{"a": "b"} }, true},
		"endpoints":   {addresses(discoveryv1.AddressTypeIPv4, "10.244.0.8"), true},
		"ports":       {func(s *discoveryv1.EndpointSlice) { s.Ports = nil }, true},
	} {
		old, s := newSlice(), newSlice(tc.change)
		old.Generation, s.Generation = 4, 4
		prepareSlice(context.Background(), s, old)
		if grew := s.Generation == 5; grew != tc.grows {
			t.Errorf("%s: generation %d", name, s.Generation)
		}
	}
}

// TestTopologyIsDropped checks that topology is not written, and that stored topology stays while
// the endpoints do not change otherwise.
func TestTopologyIsDropped(t *testing.T) {
	old := newSlice()
	old.Endpoints[0].DeprecatedTopology = map[string]string{"a": "b"}
	for _, tc := range []struct {
		s, old *discoveryv1.EndpointSlice
		left   bool
	}{{old.DeepCopy(), nil, false}, {old.DeepCopy(), old, true}, {old.DeepCopy(), newSlice(), false}} {
		prepareSlice(context.Background(), tc.s, tc.old)
		if left := tc.s.Endpoints[0].DeprecatedTopology != nil; left != tc.left {
			t.Errorf("left is %v, want %v", left, tc.left)
		}
	}
}

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range Group().Scheme {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{}}}
	scheme.Default(s)
	want := []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP)}}
	if diff := cmp.Diff(want, s.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestColumns(t *testing.T) {
	many := newSlice(func(s *discoveryv1.EndpointSlice) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new("a")}, discoveryv1.EndpointPort{})
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"1", "2"}}, discoveryv1.Endpoint{Addresses: []string{"3"}})
	})
	for _, tc := range []struct {
		s    *discoveryv1.EndpointSlice
		want []any
	}{
		{newSlice(), []any{"IPv4", "80", "10.244.0.7"}},
		{many, []any{"IPv4", "80,a,*", "10.244.0.7,1,2 + 1 more..."}},
		{&discoveryv1.EndpointSlice{}, []any{"", "<unset>", "<unset>"}},
	} {
		var got []any
		for _, column := range EndpointSlice.Columns {
			got = append(got, column.Cell(tc.s))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("cells (-want +got):\n%s", diff)
		}
	}
}

func TestWarnings(t *testing.T) {
	odd := newSlice(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"::ffff:1.2.3.4"} })
	if got := sliceWarnings(context.Background(), odd, nil); len(got) != 1 {
		t.Errorf("warnings %q", got)
	}
	odd.Labels = map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	if got := sliceWarnings(context.Background(), odd, nil); got != nil {
		t.Errorf("warnings to the controller: %q", got)
	}
	named := newSlice(addresses(discoveryv1.AddressTypeFQDN, "a.example.com"))
	if diff := cmp.Diff([]string{"spec.addressType: FQDN endpoints are deprecated"}, sliceWarnings(context.Background(), named, nil)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
