// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
)

// hashes has a line for each built-in group version and other root of routes: its path, and the hash of its
// OpenAPI v3 document. The list of documents has the hashes, and k8s.io/kube-aggregator reads the list at the
// start.
//
//go:embed zz_generated.hashes.txt
var hashes string

// Documents serves the OpenAPI documents of a server's routes. A document is built when it is first
// requested: building all of them takes a third of a start, and 30 MB.
type Documents struct {
	// Container has the routes of the server.
	Container *restful.Container
	V2        *common.Config
	V3        *common.OpenAPIV3Config
	// Standard is set if the server serves exactly the groups, versions and resources whose hashes were
	// generated. If it is not, the v3 documents are built when the list of documents is requested.
	Standard bool
}

// Apart returns a configuration for one builder of k8s.io/kube-openapi, which completes it.
func Apart(shared *common.OpenAPIV3Config) *common.OpenAPIV3Config {
	config := *shared
	return &config
}

// Install adds the documents to a mux. All routes must be in the container.
func (d *Documents) Install(to *mux.PathRecorderMux) {
	v2 := d.lazily(func(m *mux.PathRecorderMux) {
		routes.OpenAPI{Config: d.V2}.InstallV2(d.Container, m)
	})
	to.Handle("/openapi/v2", v2)

	all := d.lazily(func(m *mux.PathRecorderMux) {
		routes.OpenAPI{V3Config: Apart(d.V3)}.InstallV3(d.Container, m)
	})
	roots := d.roots()
	list, known := knownList(roots)
	if !d.Standard || !known {
		to.Handle("/openapi/v3", all)
		to.HandlePrefix("/openapi/v3/", all)
		return
	}
	to.HandleFunc("/openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(list)
	})
	documents := map[string]http.Handler{}
	for root, service := range roots {
		documents["/openapi/v3/"+root] = d.lazily(func(m *mux.PathRecorderMux) {
			only := restful.NewContainer()
			only.Add(service)
			routes.OpenAPI{V3Config: Apart(d.V3)}.InstallV3(only, m)
		})
	}
	to.HandlePrefix("/openapi/v3/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if document, ok := documents[r.URL.Path]; ok {
			document.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}))
}

// lazily returns a handler that builds its documents with the first request.
func (d *Documents) lazily(install func(*mux.PathRecorderMux)) http.Handler {
	built := sync.OnceValue(func() http.Handler {
		m := mux.NewPathRecorderMux("openapi")
		install(m)
		return m
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { built().ServeHTTP(w, r) })
}

// roots returns the services with routes by the path of their document.
func (d *Documents) roots() map[string]*restful.WebService {
	roots := map[string]*restful.WebService{}
	for _, service := range d.Container.RegisteredWebServices() {
		roots[strings.TrimPrefix(service.RootPath(), "/")] = service
	}
	return roots
}

// knownList returns the list of documents, and whether the hashes of all documents are known.
func knownList(roots map[string]*restful.WebService) (list []byte, known bool) {
	generated := map[string]string{}
	for line := range strings.Lines(hashes) {
		root, hash, _ := strings.Cut(strings.TrimSpace(line), " ")
		generated[root] = hash
	}
	discovery := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for root := range roots {
		hash, ok := generated[root]
		if !ok {
			return nil, false
		}
		at := url.URL{Path: "/openapi/v3/" + root, RawQuery: url.Values{"hash": {hash}}.Encode()}
		discovery.Paths[root] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: at.String()}
	}
	list, err := json.Marshal(discovery)
	return list, err == nil
}
