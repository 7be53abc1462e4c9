// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serve is the node's HTTPS server: logs, exec, attach and port-forward for the API server, and
// /metrics/resource for the collectors of metrics.
//
// It authenticates clients by certificates of the cluster's authority or by tokens, which the API server
// reviews. The API server itself may do everything. Others are authorized by the API server, as upstream's
// kubelet does in the authorization mode Webhook. Logs are read from files. For streams, the runtime returns a URL, and the connection is proxied to it as in
// upstream's kubelet. The two WebSocket protocols, which runtimes need not support, are translated to
// SPDY (KEP-4006).
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	nodepod "github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// Runtime is the used part of CRI's runtime service.
type Runtime interface {
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) error
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
}

// Options are what the server depends on, and the clients that it serves.
type Options struct {
	// Node is the node's name.
	Node    string
	Lookup  nodepod.Lookup
	Runtime Runtime
	Stats   stats.Source
	Clock   clock.WithTicker
	// CheckpointDir is where checkpoints of containers are written.
	CheckpointDir string
	// ClientCAs issue the certificates of clients. Users and Groups are the names in them (CN and
	// O) that may do everything.
	ClientCAs *x509.CertPool
	Users     []string
	Groups    []string
	// Reviews authenticates tokens and authorizes all other clients.
	Reviews kubernetes.Interface
}

// Server serves the API server.
type Server struct {
	options Options
	handler http.Handler
}

// New returns a Server.
func New(options Options) *Server {
	s := &Server{options: options}
	private := http.NewServeMux()
	private.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	private.HandleFunc("GET /pods", s.pods)
	private.Handle("GET "+stats.Path, stats.Handler(options.Stats))
	for _, at := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
		handle(private, "/exec"+at, s.exec)
		handle(private, "/attach"+at, s.attach)
	}
	for _, at := range []string{"/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"} {
		handle(private, "/portForward"+at, s.portForward)
	}
	private.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	public := http.NewServeMux()
	public.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	public.Handle("/", s.authenticated(private))
	s.handler = public
	return s
}

// handle registers a handler for GET, which WebSocket clients use, and for POST, which SPDY clients use.
func handle(mux *http.ServeMux, pattern string, handler http.HandlerFunc) {
	mux.HandleFunc("GET "+pattern, handler)
	mux.HandleFunc("POST "+pattern, handler)
}

// ServeHTTP serves one request. It must come over TLS with TLSConfig.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// TLSConfig returns the configuration for listeners of a Server.
func TLSConfig(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: certificate,
		// Each request verifies the certificate, so that a client with an invalid one gets a status
		// instead of a failed handshake.
		ClientAuth: tls.RequestClientCert,
	}
}

// headerTimeout limits how long a connection may stay open without a request.
const headerTimeout = 30 * time.Second

// Serve serves the listener until ctx ends. Then it closes all connections, because streams may never
// end by themselves.
func (s *Server) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	server := &http.Server{
		Handler:           s,
		TLSConfig:         config,
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// Do not log failed handshakes.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.ServeTLS(listener, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// fail responds with an error. The API server passes its text on to the user.
func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message))
}

func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{}
	list.APIVersion, list.Kind = "v1", "PodList"
	list.Items = []v1.Pod{}
	for _, pod := range s.options.Lookup.Pods() {
		list.Items = append(list.Items, *pod)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&list)
}
