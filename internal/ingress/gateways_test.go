// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestEmbeddedCRDs: each kind that is watched has a CRD that serves its version, as soon as it is established.
func TestEmbeddedCRDs(t *testing.T) {
	all, err := embeddedCRDs()
	if err != nil {
		t.Fatal(err)
	}
	kinds := newKinds()
	for _, typed := range all {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{Object: content}
		if serves(crd) {
			t.Errorf("%s is served before it is established", crd.GetName())
		}
		if err := unstructured.SetNestedSlice(crd.Object, []any{map[string]any{"type": "Established", "status": "True"}}, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
		if slim := slimCRD(slimCRD(crd)).(*unstructured.Unstructured); slim.Object["serves"] != true || slim.GetName() != crd.GetName() {
			t.Errorf("%s does not serve %s", crd.GetName(), gatewayv1.GroupVersion)
		}
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		if _, ok := kinds[plural]; !ok {
			t.Errorf("%s is not watched", plural)
		}
		delete(kinds, plural)
	}
	for plural := range kinds {
		t.Errorf("%s has no CRD", plural)
	}
}

// TestServiceName: names of Services are labels, and different for different Gateways.
func TestServiceName(t *testing.T) {
	long := "a123456789a123456789a123456789a123456789a123456789a123456789a123456789"
	seen := map[string]bool{}
	for _, name := range []string{"a", "a.b", "a-b", long, long + "b"} {
		got := serviceName(name)
		if seen[got] || len(validation.IsDNS1035Label(got)) > 0 {
			t.Errorf("%s: %s", name, got)
		}
		seen[got] = true
	}
}

// TestTyped: an object of another form than this version has is kept as it is, and ignored.
func TestTyped(t *testing.T) {
	k := newKinds()["gateways"]
	object := func(name any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "g"}, "spec": map[string]any{"gatewayClassName": name}}}
	}
	if g, ok := k.typed(object("kindred")).(*gatewayv1.Gateway); !ok || g.Spec.GatewayClassName != "kindred" {
		t.Errorf("%+v", g)
	}
	if _, ok := k.typed(object([]any{"kindred"})).(metav1.Object); !ok {
		t.Error("an informer cannot store it")
	}
}
