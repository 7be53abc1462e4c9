// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/network/service"
)

// healthChecks serve the healthCheckNodePort of Services, by which load balancers find the nodes that have endpoints of
// their own. Answers are as kube-proxy's.
type healthChecks struct {
	// failed is called for a Service whose port cannot be opened.
	failed func(svc *v1.Service, port int32, err error)
	open   map[string]*healthCheck
	// refused has the error of each Service whose port could not be opened.
	refused map[string]string
}

// healthCheck serves the port of one Service.
type healthCheck struct {
	port      int32
	server    *http.Server
	endpoints atomic.Int64
}

// set serves, changes or closes the port of a Service, which is nil if it was deleted.
func (h *healthChecks) set(ctx context.Context, key string, svc *v1.Service, endpointSlices []*discoveryv1.EndpointSlice, node service.Node) {
	var port int32
	if svc != nil && svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
		port = svc.Spec.HealthCheckNodePort
	}
	check := h.open[key]
	if check != nil && check.port != port {
		check.close(key)
		delete(h.open, key)
		check = nil
	}
	if port == 0 {
		delete(h.refused, key)
		return
	}
	if check == nil {
		var err error
		if check, err = serveHealth(ctx, svc, port); err != nil {
			if h.refused[key] != err.Error() {
				h.refused[key] = err.Error()
				h.failed(svc, port, err)
			}
			return
		}
		delete(h.refused, key)
		h.open[key] = check
	}
	check.endpoints.Store(int64(service.ReadyOn(node, endpointSlices)))
}

// close closes all ports.
func (h *healthChecks) close() {
	for key, check := range h.open {
		check.close(key)
	}
}

func (c *healthCheck) close(key string) {
	if err := c.server.Close(); err != nil {
		klog.ErrorS(err, "Closing the health check of a Service", "service", key)
	}
}

func serveHealth(ctx context.Context, svc *v1.Service, port int32) (*healthCheck, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	c := &healthCheck{port: port}
	namespace, name := svc.Namespace, svc.Name
	c.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.answer(w, namespace, name)
		}),
	}
	go func() { _ = c.server.Serve(listener) }() // until it is closed
	return c, nil
}

// answer writes the number of ready endpoints of the Service on this node.
func (c *healthCheck) answer(w http.ResponseWriter, namespace, name string) {
	endpoints := c.endpoints.Load()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(endpoints, 10))
	if endpoints == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "\t")
	_ = encoder.Encode(map[string]any{ // the client may be gone
		"service":             map[string]string{"namespace": namespace, "name": name},
		"localEndpoints":      endpoints,
		"serviceProxyHealthy": true,
	})
}
