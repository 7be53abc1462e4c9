// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// reviewTimeout limits one TokenReview.
const reviewTimeout = 10 * time.Second

// Access authenticates and authorizes the clients of a node.
type Access struct {
	authenticator authenticator.Request
	authorizer    authorizer.UnconditionalAuthorizer
	clientCAs     dynamiccertificates.CAContentProvider
	users, groups []string
}

// AccessOptions are what decides who may use the server.
type AccessOptions struct {
	// Config has the authentication and authorization of KubeletConfiguration.
	Config *kubeletv1beta1.KubeletConfiguration
	// ClusterCA issues the certificates of clients, in PEM; the file of the configuration may have further issuers.
	ClusterCA []byte
	// Users and Groups are the names of clients that may do everything.
	Users, Groups []string
	// Reviews reviews tokens and authorizes the other clients. If it is nil, there are no tokens, and other clients may do
	// nothing.
	Reviews kubernetes.Interface
}

// NewAccess returns the access that the options describe.
func NewAccess(o AccessOptions) (*Access, error) {
	clientCAs, err := clientCAs(o)
	if err != nil {
		return nil, err
	}
	a := &Access{clientCAs: clientCAs, users: o.Users, groups: o.Groups}
	authentication := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: *o.Config.Authentication.Anonymous.Enabled},
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                options.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           o.Config.Authentication.Webhook.CacheTTL.Duration,
		ClientCertificateCAContentProvider: clientCAs,
	}
	if *o.Config.Authentication.Webhook.Enabled && o.Reviews != nil {
		authentication.TokenAccessReviewClient = o.Reviews.AuthenticationV1()
	}
	if a.authenticator, _, err = authentication.New(); err != nil {
		return nil, err
	}
	if o.Config.Authorization.Mode == kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow {
		a.authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
		return a, nil
	}
	if o.Reviews == nil {
		a.authorizer = authorizerfactory.NewAlwaysDenyAuthorizer()
		return a, nil
	}
	a.authorizer, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: o.Reviews.AuthorizationV1(),
		AllowCacheTTL:             o.Config.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DenyCacheTTL:              o.Config.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	return a, err
}

func clientCAs(o AccessOptions) (dynamiccertificates.CAContentProvider, error) {
	cluster, err := dynamiccertificates.NewStaticCAContent("cluster", o.ClusterCA)
	if err != nil {
		return nil, err
	}
	file := o.Config.Authentication.X509.ClientCAFile
	if file == "" {
		return cluster, nil
	}
	further, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
	}
	return dynamiccertificates.NewUnionCAContentProvider(cluster, further), nil
}

// Run follows the file of client CAs, if there is one, until ctx ends.
func (a *Access) Run(ctx context.Context) {
	if file, ok := a.clientCAs.(dynamiccertificates.ControllerRunner); ok {
		file.Run(ctx, 1)
	}
}

// authenticated passes on the requests of clients that may make them.
func (a *Access) authenticated(node string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, ok, err := a.authenticator.AuthenticateRequest(r)
		if err != nil {
			klog.FromContext(r.Context()).V(2).Info("Cannot authenticate a client", "err", err)
		}
		if err != nil || !ok {
			fail(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		client, verb, subresources := response.User, verbOf(r.Method), subresourcesOf(r.URL.Path)
		allowed, err := a.allowed(r.Context(), attributes(client, node, verb, r.URL.Path, subresources))
		if err != nil {
			message := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", client.GetName(), verb, subresources)
			klog.FromContext(r.Context()).Error(err, message)
			fail(w, http.StatusInternalServerError, message)
			return
		}
		if !allowed {
			fail(w, http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", client.GetName(), verb, subresources))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed reports whether one of the attributes is allowed (KEP-2862).
func (a *Access) allowed(ctx context.Context, attributes []authorizer.Attributes) (bool, error) {
	for _, attribute := range attributes {
		if a.isPrivileged(attribute.GetUser()) {
			return true, nil
		}
		decision, _, err := a.authorizer.Authorize(ctx, attribute)
		if err != nil || decision == authorizer.DecisionAllow {
			return err == nil, err
		}
	}
	return false, nil
}

// isPrivileged reports whether a client may do everything. The API server itself is one: it must be able to reach nodes
// before it can authorize.
func (a *Access) isPrivileged(client user.Info) bool {
	return slices.Contains(a.users, client.GetName()) ||
		slices.ContainsFunc(client.GetGroups(), func(group string) bool { return slices.Contains(a.groups, group) })
}
