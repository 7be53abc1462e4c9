// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/stats"
)

// authenticated authenticates and authorizes clients.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, ok := s.identify(r)
		if !ok {
			fail(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		subresources := subresourcesOf(r.URL.Path)
		allowed, err := s.allowed(r, client, subresources)
		if err != nil {
			message := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", client.GetName(), verb(r.Method), subresources)
			klog.FromContext(r.Context()).Error(err, message)
			fail(w, http.StatusInternalServerError, message)
			return
		}
		if !allowed {
			fail(w, http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", client.GetName(), verb(r.Method), subresources))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// identify returns the user of the client's certificate, or else of its token.
func (s *Server) identify(r *http.Request) (user.Info, bool) {
	if client, ok := s.certified(r); ok {
		return client, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if s.options.Reviews == nil || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, false
	}
	review, err := s.options.Reviews.AuthenticationV1().TokenReviews().Create(r.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Cannot review a client's token")
		return nil, false
	}
	u := review.Status.User
	extra := map[string][]string{}
	for key, values := range u.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}, review.Status.Authenticated
}

// certified returns the user of the client's certificate.
func (s *Server) certified(r *http.Request) (user.Info, bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	leaf := r.TLS.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         s.options.ClientCAs,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	groups := append(slices.Clone(leaf.Subject.Organization), user.AllAuthenticated)
	return &user.DefaultInfo{Name: leaf.Subject.CommonName, Groups: groups}, err == nil
}

// allowed reports whether a client may make a request: one of the subresources suffices (KEP-2862).
// Decisions are not cached, because few clients but the API server talk to a node.
func (s *Server) allowed(r *http.Request, client user.Info, subresources []string) (bool, error) {
	if slices.Contains(s.options.Users, client.GetName()) ||
		slices.ContainsFunc(client.GetGroups(), func(group string) bool { return slices.Contains(s.options.Groups, group) }) {
		return true, nil
	}
	if s.options.Reviews == nil {
		return false, nil
	}
	for _, subresource := range subresources {
		if allowed, err := s.review(r.Context(), client, verb(r.Method), subresource); allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

func (s *Server) review(ctx context.Context, client user.Info, verb, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range client.GetExtra() {
		extra[key] = values
	}
	review, err := s.options.Reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: client.GetName(), UID: client.GetUID(), Groups: client.GetGroups(), Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: s.options.Node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// subresourcesOf returns the subresources of nodes that allow requests to a path, as upstream's kubelet
// has them for the paths that are served here.
func subresourcesOf(path string) []string {
	path = strings.TrimSuffix(path, "/")
	if strings.HasPrefix(path, "/checkpoint/") {
		return []string{"checkpoint"}
	}
	switch path {
	case "/pods":
		return []string{"pods", "proxy"}
	case stats.Path:
		return []string{"metrics"}
	}
	return []string{"proxy"}
}

// verb returns the API's verb for the method.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodGet, http.MethodHead:
		return "get"
	}
	return method
}
