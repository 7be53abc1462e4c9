// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net"
	"strconv"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	serverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/apiserver/inprocess"
	"github.com/kindred-project/kindred/internal/auth/bootstraptoken"
	"github.com/kindred-project/kindred/internal/auth/node"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/auth/rbac"
	"github.com/kindred-project/kindred/internal/auth/serviceaccount"
)

// publicPaths are the only paths for callers without credentials, unless configured otherwise: health, version, and the cluster's
// authority, by which machines that join recognize the server (as kubeadm has them).
var publicPaths = []serverconfig.AnonymousAuthCondition{
	{Path: "/livez"}, {Path: "/readyz"}, {Path: "/healthz"}, {Path: "/version"},
	{Path: "/api/v1/namespaces/kube-public/configmaps/cluster-info"},
}

// tokenCacheTTL is the time that the verification of a token is cached.
const tokenCacheTTL = 10 * time.Second // as upstream

// issuerURL is the issuer of service account tokens, and their audience.
const issuerURL = serviceaccount.DefaultIssuerURL

// access has the authenticators and authorizers.
type access struct {
	clientCA, frontProxyCA dynamiccertificates.CAContentProvider
	frontProxy             *authenticatorfactory.RequestHeaderConfig

	issuer        *serviceaccount.Issuer
	discovery     *serviceaccount.Discovery
	audiences     authenticator.Audiences
	authenticator authenticator.Request

	authorizer authorizer.Authorizer
	rules      authorizer.RuleResolver
	escalation *rbac.Escalation
}

func newAccess(ctx context.Context, c Config, client kubernetes.Interface, shared informers.SharedInformerFactory) (*access, error) {
	a := &access{audiences: authenticator.Audiences{issuerURL}}
	var err error
	if a.clientCA, err = dynamiccertificates.NewStaticCAContent("client-ca", c.PKI.Cluster.CertPEM); err != nil {
		return nil, err
	}
	if a.frontProxyCA, err = dynamiccertificates.NewStaticCAContent("front-proxy-ca", c.PKI.FrontProxy.CertPEM); err != nil {
		return nil, err
	}
	keys, err := serviceaccount.NewKeys(c.PKI.ServiceAccountKey)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(c.AdvertiseAddress.String(), strconv.Itoa(c.AdvertisePort))
	if a.discovery, err = serviceaccount.NewDiscovery(issuerURL, address, keys); err != nil {
		return nil, err
	}
	objects := serviceaccount.NewObjects(client, shared.Core().V1())
	a.issuer = serviceaccount.NewIssuer(issuerURL, keys, objects, a.audiences, c.Clock)
	outside, err := c.Authentication.Tokens(ctx, a.audiences, c.Clock)
	if err != nil {
		return nil, err
	}
	// Authenticators that need no external service are first.
	a.authenticate(tokenunion.New(
		serviceaccount.NewLegacy(keys, objects, a.audiences, c.Clock),
		serviceaccount.NewAuthenticator(issuerURL, keys, objects, a.audiences, c.Clock),
		authenticator.WrapAudienceAgnosticToken(a.audiences, bootstraptoken.NewAuthenticator(client, c.Clock)),
		outside,
	), c.Authentication.Anonymous())
	return a, a.authorize(ctx, c, client, shared)
}

// authenticate sets the authenticator: the identity of in-process clients first, and then, in
// upstream's order, front proxy, client certificates, bearer tokens.
func (a *access) authenticate(tokens authenticator.Token, anonymousConfig *serverconfig.AnonymousAuthConfig) {
	a.frontProxy = &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		CAContentProvider:   a.frontProxyCA,
		AllowedClientNames:  headerrequest.StaticStringSlice{pki.FrontProxyClientName},
	}
	cached := cache.New(tokens, true, tokenCacheTTL, 0)
	known := group.NewAuthenticatedGroupAdder(union.New(
		headerrequest.NewDynamicVerifyOptionsSecure(a.frontProxyCA.VerifyOptions, a.frontProxy.AllowedClientNames,
			a.frontProxy.UsernameHeaders, a.frontProxy.UIDHeaders, a.frontProxy.GroupHeaders, a.frontProxy.ExtraHeaderPrefixes),
		rememberCertificates(x509request.NewDynamic(a.clientCA.VerifyOptions, x509request.CommonNameUserConversion), clock.RealClock{}),
		bearertoken.New(cached),
		websocket.NewProtocolAuthenticator(cached),
	))
	a.authenticator = union.New(inprocess.Authenticator(), known)
	if anonymousConfig == nil {
		anonymousConfig = &serverconfig.AnonymousAuthConfig{Enabled: true, Conditions: publicPaths}
	}
	if anonymousConfig.Enabled {
		// Invalid credentials are refused, on public paths too.
		a.authenticator = union.NewFailOnError(a.authenticator, anonymous.NewAuthenticator(anonymousConfig.Conditions))
	}
}

// cachedSlice returns a function that gets a ResourceSlice from the watch cache.
func cachedSlice(client kubernetes.Interface) func(string) (*resourcev1.ResourceSlice, error) {
	return func(name string) (*resourcev1.ResourceSlice, error) {
		return client.ResourceV1().ResourceSlices().Get(context.Background(), name, metav1.GetOptions{ResourceVersion: "0"})
	}
}

// authorize sets the authorizer: the chain of the configuration.
func (a *access) authorize(ctx context.Context, c Config, client kubernetes.Interface, shared informers.SharedInformerFactory) error {
	resolver, err := rbac.NewResolver(shared.Rbac().V1())
	if err != nil {
		return err
	}
	nodes, err := node.NewAuthorizer(node.Sources{
		Pods:                   shared.Core().V1().Pods(),
		PersistentVolumes:      shared.Core().V1().PersistentVolumes(),
		VolumeAttachments:      shared.Storage().V1().VolumeAttachments(),
		PodCertificateRequests: shared.Certificates().V1().PodCertificateRequests(),
		ResourceSlice:          cachedSlice(client),
	})
	if err != nil {
		return err
	}
	chain, err := c.Authorization.Chain(ctx, nodes, rbac.NewAuthorizer(resolver))
	if err != nil {
		return err
	}
	a.authorizer, a.rules = chain, chain
	a.escalation = rbac.NewEscalation(resolver, chain)
	return nil
}

func (a *access) apply(g *genericapiserver.Config) {
	g.Authentication = genericapiserver.AuthenticationInfo{
		APIAudiences:        a.audiences,
		Authenticator:       a.authenticator,
		RequestHeaderConfig: a.frontProxy,
	}
	g.Authorization.Authorizer = a.authorizer
	g.RuleResolver = a.rules
	// The authenticators verify client certificates. TLS only requests certificates of both
	// authorities.
	g.SecureServing.ClientCA = dynamiccertificates.NewUnionCAContentProvider(a.clientCA, a.frontProxyCA)
}

// serveIssuer serves the OpenID Connect discovery documents of service account tokens.
func (a *access) serveIssuer(main *genericapiserver.GenericAPIServer) {
	main.Handler.NonGoRestfulMux.HandleFunc(serviceaccount.ConfigurationPath, a.discovery.Configuration)
	main.Handler.NonGoRestfulMux.HandleFunc(serviceaccount.KeySetPath, a.discovery.KeySet)
}
