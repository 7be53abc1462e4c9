// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"

	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
)

// mergeDefinitions adds the definitions of the libraries for the kinds that they serve. If both
// have a type, Kindred's definition is used.
func mergeDefinitions(own common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		merged := aggregatoropenapi.GetOpenAPIDefinitions(ref)
		maps.Copy(merged, apiextensionsopenapi.GetOpenAPIDefinitions(ref))
		maps.Copy(merged, own(ref))
		return merged
	}
}
