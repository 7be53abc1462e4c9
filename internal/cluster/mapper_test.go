// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// countingMapper counts lookups, of which the first fails.
type countingMapper struct {
	meta.RESTMapper
	lookups int
}

func (m *countingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.lookups++; m.lookups == 1 {
		return nil, errors.New("the server is starting")
	}
	return &meta.RESTMapping{GroupVersionKind: kind.WithVersion(versions[0])}, nil
}

// TestMapper: only the mappings of built-in kinds are remembered, and no errors.
func TestMapper(t *testing.T) {
	inner := &countingMapper{}
	m := &mapper{RESTMapper: inner, builtIn: scheme.Scheme}
	deployment := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	if _, err := m.RESTMapping(deployment, "v1"); err == nil {
		t.Error("the error of the first lookup is lost")
	}
	for range 3 {
		if got, err := m.RESTMapping(deployment, "v1"); err != nil || got.GroupVersionKind != deployment.WithVersion("v1") {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if inner.lookups != 2 {
		t.Errorf("%d lookups of a built-in kind, want 2", inner.lookups)
	}
	for range 3 {
		if _, err := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Deployment"}, "v1"); err != nil {
			t.Error(err)
		}
	}
	if inner.lookups != 5 {
		t.Errorf("%d lookups, want one for each request of a custom kind", inner.lookups-2)
	}
}
