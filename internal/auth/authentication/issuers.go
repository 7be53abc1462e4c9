// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/configfile"
)

const (
	// readyTimeout is the time that the issuers of a changed configuration may take to return their keys.
	readyTimeout = time.Minute
	// readyPoll is the interval at which the keys are checked.
	readyPoll = 100 * time.Millisecond
	// retireDelay is the time that replaced authenticators stay, for requests in progress.
	retireDelay = time.Minute
)

// issuers is a configuration of trusted issuers, with its file, if it has one.
type issuers struct {
	configuration *apiserver.AuthenticationConfiguration
	algorithms    []string
	file          string
	content       []byte
}

func loadIssuers(file string) (*issuers, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	configuration, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config %s: %w", file, err)
	}
	// The keys that an issuer publishes determine the accepted algorithms.
	return &issuers{configuration: configuration, algorithms: oidc.AllValidSigningAlgorithms(), file: file, content: content}, nil
}

// codecs reads the API group apiserver.config.k8s.io. Unknown fields are errors.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}()

func parse(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("the file is empty")
	}
	object, err := runtime.Decode(codecs.UniversalDecoder(), content)
	if err != nil {
		return nil, err
	}
	configuration, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is not an AuthenticationConfiguration but a %T", object)
	}
	return configuration, check(configuration)
}

// Tokens returns an authenticator of bearer tokens: first tokens of the issuers, then by the
// webhook. It has no opinion on other tokens. Its background work ends with ctx; now is the
// cluster's clock.
func (c Config) Tokens(ctx context.Context, audiences authenticator.Audiences, now clock.Clock) (authenticator.Token, error) {
	var all []authenticator.Token
	if c.issuers != nil {
		trusted, err := c.issuers.follow(ctx, now)
		if err != nil {
			return nil, err
		}
		all = append(all, authenticator.WrapAudienceAgnosticToken(audiences, trusted))
	}
	if c.webhook != nil {
		remote, err := webhook.New(c.webhook.client, c.webhook.version, audiences, *options.DefaultAuthWebhookRetryBackoff())
		if err != nil {
			return nil, fmt.Errorf("token webhook: %w", err)
		}
		all = append(all, cache.New(remote, false, c.webhook.ttl, c.webhook.ttl))
	}
	return union.New(all...), nil
}

// generation has the authenticators of one version of the configuration: one for each issuer, and
// Token, which is their union. end stops them.
type generation struct {
	authenticator.Token
	each []oidc.AuthenticatorTokenWithHealthCheck
	end  context.CancelFunc
}

// generation starts the authenticators of a configuration.
func (i *issuers) generation(ctx context.Context, configuration *apiserver.AuthenticationConfiguration) (*generation, error) {
	ctx, cancel := context.WithCancel(ctx)
	g := &generation{end: cancel}
	var tokens []authenticator.Token
	for _, jwt := range configuration.JWT {
		options := oidc.Options{JWTAuthenticator: jwt, SupportedSigningAlgs: i.algorithms}
		if authority := jwt.Issuer.CertificateAuthority; authority != "" {
			content, err := dynamiccertificates.NewStaticCAContent("oidc-authenticator", []byte(authority))
			if err != nil {
				cancel()
				return nil, fmt.Errorf("issuer %s: %w", jwt.Issuer.URL, err)
			}
			options.CAContentProvider = content
		}
		one, err := oidc.New(ctx, options)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("issuer %s: %w", jwt.Issuer.URL, err)
		}
		g.each, tokens = append(g.each, one), append(tokens, one)
	}
	g.Token = union.NewFailOnError(tokens...)
	return g, nil
}

// checkReady returns an error unless the keys of all issuers are known.
func (g *generation) checkReady() error {
	var problems []error
	for _, one := range g.each {
		problems = append(problems, one.HealthCheck())
	}
	return errors.Join(problems...)
}

// awaitReady waits until the keys of all issuers are known, at most for readyTimeout.
func (g *generation) awaitReady(ctx context.Context, now clock.Clock) error {
	for deadline := now.Now().Add(readyTimeout); ; {
		err := g.checkReady()
		if err == nil || now.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-now.After(readyPoll):
		}
	}
}

// follow returns an authenticator that always uses the latest valid configuration.
func (i *issuers) follow(ctx context.Context, now clock.Clock) (authenticator.Token, error) {
	first, err := i.generation(ctx, i.configuration)
	if err != nil {
		return nil, err
	}
	var current atomic.Pointer[generation]
	current.Store(first)
	if i.file != "" {
		go configfile.Follow(ctx, i.file, i.content, func(content []byte) error {
			next, err := i.next(ctx, content, now)
			if err != nil {
				return err
			}
			old := current.Swap(next)
			go retire(ctx, old, now)
			return nil
		})
	}
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return current.Load().AuthenticateToken(ctx, token)
	}), nil
}

// next returns the authenticators of a changed file, when the keys of its issuers are known. Until
// then the old ones stay in use.
func (i *issuers) next(ctx context.Context, content []byte, now clock.Clock) (*generation, error) {
	configuration, err := parse(content)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(configuration.Anonymous, i.configuration.Anonymous) {
		return nil, errors.New("the settings of anonymous authentication can only be changed by a restart")
	}
	next, err := i.generation(ctx, configuration)
	if err != nil {
		return nil, err
	}
	if err := next.awaitReady(ctx, now); err != nil {
		next.end()
		return nil, err
	}
	return next, nil
}

// retire stops replaced authenticators after retireDelay, when no request uses them any more.
func retire(ctx context.Context, old *generation, now clock.Clock) {
	select {
	case <-ctx.Done():
	case <-now.After(retireDelay):
	}
	old.end()
}
