// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/registry/core"
)

// nodeConnections connects to the agents of nodes at their addresses, with the API server's client
// certificate. It implements core.NodeConnections.
type nodeConnections struct {
	client     kubernetes.Interface
	authorizer authorizer.Authorizer
	// verified trusts only the cluster's authority; anyone accepts every certificate, which a
	// caller may request.
	verified, anyone *http.Transport
	proxied          *http.Transport
}

var _ core.NodeConnections = &nodeConnections{}

func newNodeConnections(keys *pki.PKI, client kubernetes.Interface, a authorizer.Authorizer) (*nodeConnections, error) {
	n := &nodeConnections{
		client:     client,
		authorizer: a,
		// Pods may have certificates of any authority.
		proxied: agentTransport(&tls.Config{InsecureSkipVerify: true}),
	}
	own, err := keys.Keep(keys.KubeletClient, n.reconnect)
	if err != nil {
		return nil, err
	}
	show := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.TLS(), nil }
	trusted := x509.NewCertPool()
	trusted.AddCert(keys.Cluster.Certificate)
	n.verified = agentTransport(&tls.Config{GetClientCertificate: show, RootCAs: trusted})
	n.anyone = agentTransport(&tls.Config{GetClientCertificate: show, InsecureSkipVerify: true})
	return n, nil
}

// reconnect closes idle connections, which were authenticated with a former certificate.
func (n *nodeConnections) reconnect(*pki.Pair) error {
	n.verified.CloseIdleConnections()
	n.anyone.CloseIdleConnections()
	return nil
}

// agentTransport returns a transport for HTTP/1.1, which can be upgraded to SPDY.
func agentTransport(config *tls.Config) *http.Transport {
	config.NextProtos = []string{"http/1.1"}
	return utilnet.SetOldTransportDefaults(&http.Transport{TLSClientConfig: config})
}

func (n *nodeConnections) Agent(ctx context.Context, name string, unverified bool) (*url.URL, http.RoundTripper, error) {
	node, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, nil, err
	}
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("node %s has no agent to connect to: it is simulated, or has not reported yet", name))
	}
	address, err := preferredAddress(node)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	transport := n.verified
	if unverified {
		transport = n.anyone
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(address, strconv.Itoa(int(port)))}, transport, nil
}

// preferredAddress returns a node's address. It prefers an IP address, because a name may not be
// resolvable.
func preferredAddress(node *corev1.Node) (string, error) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName} {
		for _, address := range node.Status.Addresses {
			if address.Type == kind {
				return address.Address, nil
			}
		}
	}
	return "", fmt.Errorf("node %s reports no address", node.Name)
}

func (n *nodeConnections) Proxy() http.RoundTripper { return n.proxied }

// MayStream authorizes the verb create where a GET was authorized, because a websocket can be
// opened with either.
func (n *nodeConnections) MayStream(ctx context.Context) error {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no RequestInfo found in the context"))
	}
	if info.Verb == "create" {
		return nil
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no user found in the context"))
	}
	decision, reason, err := n.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: "create", ResourceRequest: true, Namespace: info.Namespace, Name: info.Name,
		APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return apierrors.NewForbidden(corev1.Resource(info.Resource), info.Name, errors.New(reason))
}
