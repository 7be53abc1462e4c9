// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken authenticates clients by bootstrap tokens: abcdef.0123456789abcdef is
// valid if kube-system has its Secret bootstrap-token-abcdef of type
// bootstrap.kubernetes.io/token.
//
// There is no informer of these Secrets. A Get for each token of exactly that form is cheaper than
// another copy of all Secrets of kube-system in memory.
package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Authenticator turns a bootstrap token into the user system:bootstrap:<id>.
type Authenticator struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
}

var _ authenticator.Token = &Authenticator{}

// NewAuthenticator reads the tokens' Secrets through client.
func NewAuthenticator(client kubernetes.Interface, clock clock.PassiveClock) *Authenticator {
	return &Authenticator{client: client, clock: clock}
}

// AuthenticateToken implements authenticator.Token. The reason why a token is refused is only
// logged, because the client must not learn it.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	id, password, err := tokens.ParseToken(token)
	if err != nil {
		return nil, false, nil // another authenticator's token
	}
	// The watch cache is as fresh as an informer.
	secret, err := a.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, bootstrap.BootstrapTokenSecretPrefix+id, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("bootstrap token %s: %w", id, err)
	}
	groups, err := a.check(secret, id, password)
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Refused a bootstrap token", "secret", klog.KObj(secret), "reason", err.Error())
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrap.BootstrapUserPrefix + id, Groups: groups}}, true, nil
}

// check returns the groups of the token's user.
func (a *Authenticator) check(secret *corev1.Secret, id, password string) ([]string, error) {
	switch {
	case secret.DeletionTimestamp != nil:
		return nil, fmt.Errorf("the secret is being deleted")
	case secret.Type != bootstrap.SecretTypeBootstrapToken:
		return nil, fmt.Errorf("the secret's type is %q", secret.Type)
	case subtle.ConstantTimeCompare([]byte(secrets.GetData(secret, bootstrap.BootstrapTokenSecretKey)), []byte(password)) != 1:
		return nil, fmt.Errorf("%s does not match", bootstrap.BootstrapTokenSecretKey)
	case secrets.GetData(secret, bootstrap.BootstrapTokenIDKey) != id:
		return nil, fmt.Errorf("%s does not match", bootstrap.BootstrapTokenIDKey)
	case secrets.HasExpired(secret, a.clock.Now()):
		return nil, fmt.Errorf("it has expired")
	case secrets.GetData(secret, bootstrap.BootstrapTokenUsageAuthentication) != "true":
		return nil, fmt.Errorf("%s is not true", bootstrap.BootstrapTokenUsageAuthentication)
	}
	return secrets.GetGroups(secret)
}
