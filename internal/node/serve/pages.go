// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/apiserver/pkg/util/compatibility"
)

// component is the name of the agent on its pages.
const component = "kubelet"

// addPages registers the pages that all components of Kubernetes have: /flagz (KEP-4828) and /statusz (KEP-4827). The latter
// lists the paths that were registered before.
func (s *Server) addPages(paths *router) {
	if flags := s.options.Config.Flags; flags != nil {
		flagz.Install(paths, component, flagReader(flags))
	}
	statusz.Install(paths, component, statusz.NewRegistry(compatibility.DefaultBuildEffectiveVersion(), statusz.WithListedPaths(paths.listed())))
}

// flagReader are the values of flags by name.
type flagReader map[string]string

// GetFlagz implements flagz.Reader.
func (f flagReader) GetFlagz() map[string]string { return f }

// router remembers what is registered.
type router struct {
	*http.ServeMux
	patterns []string
}

func newRouter() *router { return &router{ServeMux: http.NewServeMux()} }

// Handle registers a handler.
func (r *router) Handle(pattern string, handler http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, handler)
}

// HandleFunc registers a handler.
func (r *router) HandleFunc(pattern string, handler http.HandlerFunc) { r.Handle(pattern, handler) }

// listed returns the registered paths, without methods and without what depends on the request.
func (r *router) listed() []string {
	var paths []string
	for _, pattern := range r.patterns {
		_, path, _ := strings.Cut(pattern, "/")
		path, _, _ = strings.Cut(path, "/{")
		paths = append(paths, "/"+strings.TrimSuffix(path, "/"))
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
