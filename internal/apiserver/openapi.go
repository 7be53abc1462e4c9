// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/kindred-project/kindred/internal/apiserver/openapi"
	"github.com/kindred-project/kindred/internal/apiserver/openapi/older"
)

// openAPIDefinitions returns the definitions of the types of all served groups. Those of versions that
// are off by default are generated apart, so that others do not pay for them.
func (s *Server) openAPIDefinitions() common.GetOpenAPIDefinitions {
	all := []common.GetOpenAPIDefinitions{
		aggregatoropenapi.GetOpenAPIDefinitions, apiextensionsopenapi.GetOpenAPIDefinitions, openapi.GetOpenAPIDefinitions,
	}
	if len(offByDefault(s.groups)) > 0 {
		all = append(all, older.GetOpenAPIDefinitions)
	}
	return mergeDefinitions(all...)
}

// mergeDefinitions returns the definitions of all types. If several have a type, the last one's
// definition is used.
func mergeDefinitions(all ...common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		merged := map[string]common.OpenAPIDefinition{}
		for _, definitions := range all {
			maps.Copy(merged, definitions(ref))
		}
		return merged
	}
}
