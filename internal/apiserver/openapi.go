// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/kindred-project/kindred/internal/apiserver/openapi"
	"github.com/kindred-project/kindred/internal/apiserver/openapi/older"
)

// describe configures the OpenAPI documents of a server, which has only types of these definitions.
func (s *Server) describe(g *genericapiserver.Config, definitions common.GetOpenAPIDefinitions) {
	g.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, s.namer)
	g.OpenAPIConfig.Info.Title = "Kubernetes"
	g.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.Kept(definitions, s.clock), s.namer)
	g.OpenAPIV3Config.Info.Title = "Kubernetes"
	g.OpenAPIV3Config.Definitions = nil // so that each builder asks for its own
}

// serveDocuments serves the OpenAPI documents of the built-in groups, once their routes are installed.
func (s *Server) serveDocuments(main *genericapiserver.GenericAPIServer, g *genericapiserver.Config, runtimeConfig map[string]string) {
	documents := &openapi.Documents{
		Container: main.Handler.GoRestfulContainer,
		V2:        g.OpenAPIConfig,
		V3:        g.OpenAPIV3Config,
		Standard:  len(runtimeConfig) == 0,
	}
	documents.Install(main.Handler.NonGoRestfulMux)
}

// openAPIDefinitions returns the definitions of the types of the built-in groups. Those of versions that
// are off by default are generated apart, so that others do not pay for them.
func (s *Server) openAPIDefinitions() common.GetOpenAPIDefinitions {
	all := []common.GetOpenAPIDefinitions{openapi.GetOpenAPIDefinitions}
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
