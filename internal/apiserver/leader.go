// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"
	metricsapi "k8s.io/metrics/pkg/apis/metrics"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/auth/pki"
)

// Leadership tells which server leads, for requests that only that one can answer.
type Leadership interface {
	// Name returns the name of this server.
	Name() string
	// Leads reports whether this server leads.
	Leads() bool
	// Leader returns the URL of the server that leads.
	Leader(ctx context.Context) (string, error)
}

// ofLeader are the groups that the server that leads answers: reviews of the garbage collector's graph, and the usage of nodes, of
// which only that server has the simulated ones.
var ofLeader = sets.New(ownership.GroupName, metricsapi.GroupName)

// forwarded marks a request that another server has passed on. It is not passed on again, if the servers do not agree on who leads.
const forwarded = "X-Kindred-Forwarded"

// toLeader passes requests that only the server that leads can answer on to that server. It follows authentication and
// authorization: the other server trusts this one's front proxy certificate to say who the caller is, as servers of the aggregation
// layer do, and decides again.
type toLeader struct {
	leadership Leadership
	codec      runtime.NegotiatedSerializer
	transport  http.RoundTripper
	next       http.Handler
}

// newToLeader returns next itself if the server is the only one.
func newToLeader(c Config, codec runtime.NegotiatedSerializer) (func(next http.Handler) http.Handler, error) {
	if c.Leadership == nil {
		return func(next http.Handler) http.Handler { return next }, nil
	}
	transport, err := peerTransport(c.PKI)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler { return toLeader{c.Leadership, codec, transport, next} }, nil
}

// peerTransport connects to other servers of the cluster with the certificate of the front proxy.
func peerTransport(keys *pki.PKI) (http.RoundTripper, error) {
	client, err := keys.Keep(keys.FrontProxyClient, nil)
	if err != nil {
		return nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(keys.Cluster.CertPEM) {
		return nil, errors.New("the cluster's authority has no certificate")
	}
	return &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: authority,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client.TLS(), nil },
	}}, nil
}

func (t toLeader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || !ofLeader.Has(info.APIGroup) || t.leadership.Leads() {
		t.next.ServeHTTP(w, r)
		return
	}
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		t.fail(w, r, info, apierrors.NewInternalError(errors.New("the request has no user")))
		return
	}
	leader, err := t.leader(r)
	if err != nil {
		t.fail(w, r, info, apierrors.NewServiceUnavailable(err.Error()))
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(leader)
			p.Out.Header.Set(forwarded, "true")
			p.Out.Header.Del("Authorization")
		},
		Transport: as(caller, t.transport),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			t.fail(w, r, info, apierrors.NewServiceUnavailable(fmt.Sprintf("the server that leads does not answer: %v", err)))
		},
	}
	proxy.ServeHTTP(w, r)
}

// leader returns the URL to which a request is passed on.
func (t toLeader) leader(r *http.Request) (*url.URL, error) {
	if r.Header.Get(forwarded) != "" {
		return nil, errors.New("no server leads at present; try again")
	}
	leader, err := t.leadership.Leader(r.Context())
	if err != nil {
		return nil, err
	}
	return url.Parse(leader)
}

func (t toLeader) fail(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, err error) {
	responsewriters.ErrorNegotiated(err, t.codec, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
}

// as returns a transport whose requests say that they are a user's.
func as(caller user.Info, next http.RoundTripper) http.RoundTripper {
	return transport.NewAuthProxyRoundTripper(caller.GetName(), caller.GetUID(), caller.GetGroups(), caller.GetExtra(), next)
}
