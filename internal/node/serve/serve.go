// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serve is the node's HTTPS server, with the paths of upstream's kubelet: logs, exec, attach and port-forward for
// the API server; metrics, statistics, pods, configuration and the node's own logs for the tools of operators.
//
// It authenticates clients by certificates of the cluster's authority or by tokens, which the API server reviews, and
// asks the API server whether they may use the subresource of the node that a path belongs to (attributes.go). The API
// server itself may do everything. Logs are read from files. For streams, the runtime returns a URL, and the connection
// is proxied to it as in upstream's kubelet. The two WebSocket protocols, which runtimes need not support, are translated
// to SPDY (KEP-4006).
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/routes"
	cliflag "k8s.io/component-base/cli/flag"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/config"
	nodepod "github.com/kindred-project/kindred/internal/node/pod"
	"github.com/kindred-project/kindred/internal/node/stats"
)

// Runtime is the used part of CRI's runtime service.
type Runtime interface {
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration) (stdout, stderr []byte, err error)
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	CheckpointContainer(ctx context.Context, request *runtimeapi.CheckpointContainerRequest) error
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
}

// Options are what the server depends on.
type Options struct {
	// Node is the node's name.
	Node    string
	Config  *config.Configuration
	Lookup  nodepod.Lookup
	Runtime Runtime
	Clock   clock.WithTicker
	// CheckpointDir is where checkpoints of containers are written.
	CheckpointDir string
	// Access decides which clients may do what.
	Access *Access
	// Health are the checks of /healthz.
	Health []healthz.HealthChecker
	// Resources and Summary measure the node, for /metrics/resource and /stats/summary.
	Resources stats.Source
	Summary   func(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error)
	// Metrics, Containers and Probes serve /metrics, /metrics/cadvisor and /metrics/probes.
	Metrics, Containers, Probes http.Handler
	// Others serve further paths, by patterns of http.ServeMux; their clients need nodes/proxy.
	Others map[string]http.Handler
	// RunningPods returns the pods that the runtime runs.
	RunningPods func(context.Context) ([]*v1.Pod, error)
	// Observe counts and measures the requests of a server, "readwrite" or "readonly"; nil for none.
	Observe func(server string, next http.Handler) http.Handler
}

// Server serves the API of a node.
type Server struct {
	options Options
	handler http.Handler
}

// New returns a Server.
func New(options Options) *Server {
	s := &Server{options: options}
	mux := newRouter()
	s.addReadOnly(mux)
	s.addDebugging(mux)
	for pattern, handler := range options.Others {
		mux.Handle(pattern, handler)
	}
	s.handler = s.observed("readwrite", options.Access.authenticated(options.Node, mux))
	return s
}

func (s *Server) observed(server string, next http.Handler) http.Handler {
	if s.options.Observe == nil {
		return next
	}
	return s.options.Observe(server, next)
}

// ReadOnly returns the handler of readOnlyPort, which has no authentication.
func (s *Server) ReadOnly() http.Handler {
	mux := newRouter()
	s.addReadOnly(mux)
	return s.observed("readonly", mux)
}

// Health returns the handler of healthzPort, which has no authentication.
func (s *Server) Health() http.Handler {
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, s.options.Health...)
	return mux
}

// addReadOnly registers the paths that only report.
func (s *Server) addReadOnly(mux *router) {
	healthz.InstallHandler(mux, s.options.Health...)
	mux.HandleFunc("GET /pods", s.pods)
	mux.HandleFunc("GET /pods/{$}", s.pods)
	mux.HandleFunc("GET /stats/summary", s.summary)
	mux.Handle("GET "+stats.Path, stats.Handler(s.options.Resources))
	mux.Handle("GET /metrics", s.options.Metrics)
	mux.Handle("GET /metrics/cadvisor", s.options.Containers)
	mux.Handle("GET /metrics/probes", s.options.Probes)
}

// addDebugging registers the paths that enableDebuggingHandlers allows.
func (s *Server) addDebugging(mux *router) {
	o := s.options.Config
	if !*o.EnableDebuggingHandlers {
		for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
			mux.Handle(path, disabled("Debug endpoints are disabled."))
		}
		return
	}
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	mux.HandleFunc("GET /runningpods/", s.runningPods)
	mux.HandleFunc("GET /configz", s.configz)
	for _, at := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
		handle(mux, "/exec"+at, s.exec)
		handle(mux, "/attach"+at, s.attach)
		mux.HandleFunc("POST /run"+at, s.run)
	}
	for _, at := range []string{"/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"} {
		handle(mux, "/portForward"+at, s.portForward)
	}
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	nodeLogs := nodeLogs{dir: systemLogs, queries: *o.EnableSystemLogQuery, journal: journalctl}
	mux.Handle("GET /logs/", enabled(*o.EnableSystemLogHandler, nodeLogs, "logs endpoint is disabled."))
	mux.Handle("POST /logs/", enabled(*o.EnableSystemLogHandler, nodeLogs, "logs endpoint is disabled."))
	mux.Handle("/debug/pprof/", enabled(*o.EnableProfilingHandler, profiles(), "profiling endpoint is disabled."))
	mux.Handle("/debug/flags/v", enabled(*o.EnableDebugFlagsHandler, routes.StringFlagPutHandler(setVerbosity), "flags endpoint is disabled."))
	s.addPages(mux)
}

func enabled(isEnabled bool, handler http.Handler, message string) http.Handler {
	if isEnabled {
		return handler
	}
	return disabled(message)
}

func disabled(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fail(w, http.StatusMethodNotAllowed, message) })
}

// handle registers a handler for GET, which WebSocket clients use, and for POST, which SPDY clients use.
func handle(mux *router, pattern string, handler http.HandlerFunc) {
	mux.HandleFunc("GET "+pattern, handler)
	mux.HandleFunc("POST "+pattern, handler)
}

// ServeHTTP serves one request. It must come over TLS with TLSConfig.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// TLSConfig returns the configuration for listeners of a Server. It fails if the agent's configuration has an unknown version,
// cipher suite or key exchange mechanism.
func TLSConfig(c *kubeletv1beta1.KubeletConfiguration, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Config, error) {
	server := &tls.Config{
		GetCertificate: certificate,
		// Each request verifies the certificate, so that a client with an invalid one gets a status
		// instead of a failed handshake.
		ClientAuth: tls.RequestClientCert,
	}
	if err := config.LimitTLS(c, server); err != nil {
		return nil, err
	}
	for name, suite := range cliflag.InsecureTLSCiphers() {
		if slices.Contains(server.CipherSuites, suite) {
			klog.Background().Info("tlsCipherSuites has a cipher suite that is not secure", "cipher", name)
		}
	}
	return server, nil
}

// headerTimeout limits how long a connection may stay open without a request.
const headerTimeout = 30 * time.Second

// Serve serves the listener until ctx ends. Then it closes all connections, because streams may never
// end by themselves.
func (s *Server) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	server := newServer(ctx, s)
	server.TLSConfig = config
	return until(ctx, server, func() error { return server.ServeTLS(listener, "", "") })
}

// ServePlain serves a handler without TLS until ctx ends.
func ServePlain(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := newServer(ctx, handler)
	return until(ctx, server, func() error { return server.Serve(listener) })
}

func newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// Do not log failed handshakes.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

func until(ctx context.Context, server *http.Server, serve func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// fail responds with an error. The API server passes its text on to the user.
func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message))
}
