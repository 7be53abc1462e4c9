// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	serverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	unionauthorizer "k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"

	"github.com/kindred-project/kindred/internal/apiserver/inprocess"
	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/auth/rbac"
)

// publicPaths are all that a caller without credentials may see.
var publicPaths = []serverconfig.AnonymousAuthCondition{
	{Path: "/livez"}, {Path: "/readyz"}, {Path: "/healthz"}, {Path: "/version"},
}

// access is who may come in and what each may do.
type access struct {
	clientCA       dynamiccertificates.CAContentProvider
	frontProxyCA   dynamiccertificates.CAContentProvider
	authentication genericapiserver.AuthenticationInfo
	authorizer     authorizer.Authorizer
	rules          *rbac.Resolver
	rbac           *rbac.Authorizer
}

func newAccess(ctx context.Context, c Config, shared informers.SharedInformerFactory) (*access, error) {
	a := &access{}
	var err error
	if a.clientCA, err = dynamiccertificates.NewStaticCAContent("client-ca", c.PKI.Cluster.CertPEM); err != nil {
		return nil, err
	}
	if a.frontProxyCA, err = dynamiccertificates.NewStaticCAContent("front-proxy-ca", c.PKI.FrontProxy.CertPEM); err != nil {
		return nil, err
	}
	a.authenticate()
	if a.rules, err = rbac.NewResolver(shared.Rbac().V1()); err != nil {
		return nil, err
	}
	a.rbac = rbac.NewAuthorizer(a.rules)
	a.authorizer, err = unionauthorizer.New(
		unionauthorizer.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		unionauthorizer.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: a.rbac},
	)
	return a, err
}

// authenticate tries, in upstream's order: the front proxy, client
// certificates, bearer tokens; and before them the process's own identity.
func (a *access) authenticate() {
	frontProxy := &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		CAContentProvider:   a.frontProxyCA,
		AllowedClientNames:  headerrequest.StaticStringSlice{pki.FrontProxyClientName},
	}
	known := group.NewAuthenticatedGroupAdder(union.New(
		headerrequest.NewDynamicVerifyOptionsSecure(a.frontProxyCA.VerifyOptions, frontProxy.AllowedClientNames,
			frontProxy.UsernameHeaders, frontProxy.UIDHeaders, frontProxy.GroupHeaders, frontProxy.ExtraHeaderPrefixes),
		x509request.NewDynamic(a.clientCA.VerifyOptions, x509request.CommonNameUserConversion),
	))
	a.authentication = genericapiserver.AuthenticationInfo{
		Authenticator:       union.New(inprocess.Authenticator(), known, anonymous.NewAuthenticator(publicPaths)),
		RequestHeaderConfig: frontProxy,
	}
}

func (a *access) apply(g *genericapiserver.Config) {
	g.Authentication = a.authentication
	g.Authorization.Authorizer = a.authorizer
	g.RuleResolver = a.rbac
	// The certificates that clients show are checked by the authenticators;
	// TLS only has to ask for them from both authorities.
	g.SecureServing.ClientCA = dynamiccertificates.NewUnionCAContentProvider(a.clientCA, a.frontProxyCA)
}
