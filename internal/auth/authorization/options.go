// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization is the chain of authorizers. Members of system:masters may do anything. For
// other users the first authorizer with an opinion decides; without an opinion the request is
// denied. The chain is Node, RBAC and an optional webhook, or that of an
// AuthorizationConfiguration.
//
// Options are upstream's flags. Load reads and checks the files that they name, so that a mistake
// is found before anything is started.
package authorization

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/util/webhook"
)

// Options are upstream's flags of the same names.
type Options struct {
	ConfigFile string

	WebhookConfigFile      string
	WebhookVersion         string
	WebhookAuthorizedTTL   time.Duration
	WebhookUnauthorizedTTL time.Duration
}

// Defaults of the options: upstream's, except the version.
const (
	DefaultWebhookVersion         = "v1"
	DefaultWebhookAuthorizedTTL   = 5 * time.Minute
	DefaultWebhookUnauthorizedTTL = 30 * time.Second
)

// Types of authorizers other than webhooks. ABAC is not supported, because its code is not published.
const (
	typeNode        = "Node"
	typeRBAC        = "RBAC"
	typeAlwaysAllow = "AlwaysAllow"
	typeAlwaysDeny  = "AlwaysDeny"
)

// Config is the result of Load. The zero value is Node and RBAC.
type Config struct {
	configuration *apiserver.AuthorizationConfiguration
	file          string
	content       []byte
}

// Load reads and checks the files that the options name.
func Load(o Options) (Config, error) {
	if o.ConfigFile == "" {
		return o.expand()
	}
	if o.anyWebhook() {
		return Config{}, errors.New("--authorization-config and the --authorization-webhook flags exclude each other: write the webhook into the file")
	}
	content, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return Config{}, fmt.Errorf("--authorization-config: %w", err)
	}
	configuration, err := parse(content)
	if err != nil {
		return Config{}, fmt.Errorf("--authorization-config %s: %w", o.ConfigFile, err)
	}
	return Config{configuration: configuration, file: o.ConfigFile, content: content}, nil
}

// anyWebhook reports whether an --authorization-webhook flag was set to another value than its default.
func (o Options) anyWebhook() bool {
	return o.WebhookConfigFile != "" ||
		o.WebhookVersion != "" && o.WebhookVersion != DefaultWebhookVersion ||
		o.WebhookAuthorizedTTL != 0 && o.WebhookAuthorizedTTL != DefaultWebhookAuthorizedTTL ||
		o.WebhookUnauthorizedTTL != 0 && o.WebhookUnauthorizedTTL != DefaultWebhookUnauthorizedTTL
}

// standard returns the chain if none is configured: Node, then RBAC.
func standard() *apiserver.AuthorizationConfiguration {
	return &apiserver.AuthorizationConfiguration{Authorizers: []apiserver.AuthorizerConfiguration{
		{Type: typeNode, Name: "node"}, {Type: typeRBAC, Name: "rbac"},
	}}
}

// expand converts the flags to a configuration.
func (o Options) expand() (Config, error) {
	version := o.WebhookVersion
	if version == "" {
		version = DefaultWebhookVersion
	}
	if version != "v1" && version != "v1beta1" {
		return Config{}, fmt.Errorf("--authorization-webhook-version: %q is neither v1 nor v1beta1", version)
	}
	chain := standard()
	if o.WebhookConfigFile == "" {
		return Config{configuration: chain}, nil
	}
	if _, err := webhook.LoadKubeconfig(o.WebhookConfigFile, nil); err != nil {
		return Config{}, fmt.Errorf("--authorization-webhook-config-file %s: %w", o.WebhookConfigFile, err)
	}
	authorized, unauthorized := orDefault(o.WebhookAuthorizedTTL, DefaultWebhookAuthorizedTTL), orDefault(o.WebhookUnauthorizedTTL, DefaultWebhookUnauthorizedTTL)
	chain.Authorizers = append(chain.Authorizers, apiserver.AuthorizerConfiguration{Type: apiserver.TypeWebhook, Name: "default", Webhook: &apiserver.WebhookConfiguration{
		AuthorizedTTL:              metav1.Duration{Duration: authorized},
		CacheAuthorizedRequests:    authorized > 0,
		UnauthorizedTTL:            metav1.Duration{Duration: unauthorized},
		CacheUnauthorizedRequests:  unauthorized > 0,
		Timeout:                    metav1.Duration{Duration: 30 * time.Second}, // as upstream's
		FailurePolicy:              apiserver.FailurePolicyNoOpinion,
		SubjectAccessReviewVersion: version,
		ConnectionInfo: apiserver.WebhookConnectionInfo{
			Type: apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &o.WebhookConfigFile,
		},
	}})
	return Config{configuration: chain}, nil
}

func orDefault(ttl, otherwise time.Duration) time.Duration {
	if ttl == 0 {
		return otherwise
	}
	return ttl
}

// parse reads a configuration and validates it with the published rules. In addition, it must have
// Node and RBAC, which authorize the cluster's own parts.
func parse(content []byte) (*apiserver.AuthorizationConfiguration, error) {
	configuration, err := load.LoadFromData(content)
	if err != nil {
		return nil, err
	}
	known := sets.New(typeNode, typeRBAC, typeAlwaysAllow, typeAlwaysDeny, string(apiserver.TypeWebhook))
	problems := validation.ValidateAuthorizationConfiguration(cel.NewDefaultCompiler(), nil, configuration, known, sets.New(string(apiserver.TypeWebhook)))
	if err := problems.ToAggregate(); err != nil {
		return nil, err
	}
	for _, one := range configuration.Authorizers {
		if err := checkOne(one); err != nil {
			return nil, err
		}
	}
	for _, needed := range []apiserver.AuthorizerType{typeNode, typeRBAC} {
		if !slices.ContainsFunc(configuration.Authorizers, func(one apiserver.AuthorizerConfiguration) bool { return one.Type == needed }) {
			return nil, fmt.Errorf("authorizer %s is missing: it authorizes the cluster's own parts", needed)
		}
	}
	return configuration, nil
}

func checkOne(one apiserver.AuthorizerConfiguration) error {
	if one.Type != apiserver.TypeWebhook {
		if want := strings.ToLower(string(one.Type)); one.Name != want {
			return fmt.Errorf("authorizer %s must be named %q, not %q", one.Type, want, one.Name)
		}
		return nil
	}
	file := one.Webhook.ConnectionInfo.KubeConfigFile
	if file == nil {
		return fmt.Errorf("authorizer %s: only a server in a pod has an InClusterConfig; name a kubeConfigFile", one.Name)
	}
	if _, err := webhook.LoadKubeconfig(*file, nil); err != nil {
		return fmt.Errorf("authorizer %s: kubeConfigFile %s: %w", one.Name, *file, err)
	}
	return nil
}
