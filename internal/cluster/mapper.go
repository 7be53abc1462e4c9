// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper remembers the mappings of built-in kinds, which do not change. Controllers look up the kind of an owner at each
// change of what it owns, and the dynamic mapper asks all groups.
type mapper struct {
	meta.RESTMapper
	builtIn *runtime.Scheme
	known   sync.Map // *meta.RESTMapping by schema.GroupVersionKind
}

// newMapper returns a provider of mappers that know the kinds of a scheme as built in.
func newMapper(builtIn *runtime.Scheme) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		dynamic, err := apiutil.NewDynamicRESTMapper(config, client)
		if err != nil {
			return nil, err
		}
		return &mapper{RESTMapper: dynamic, builtIn: builtIn}, nil
	}
}

// RESTMapping implements meta.RESTMapper.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 || !m.builtIn.Recognizes(kind.WithVersion(versions[0])) {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if known, ok := m.known.Load(key); ok {
		return known.(*meta.RESTMapping), nil
	}
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(key, mapping)
	}
	return mapping, err
}
