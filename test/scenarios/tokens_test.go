// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// whoIs returns the user of a token by a TokenReview.
func (s *session) whoIs(token string) (authenticationv1.UserInfo, error) {
	s.Helper()
	config := rest.AnonymousClientConfig(s.cluster.config(s.T))
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(s.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return me.Status.UserInfo, nil
}

// TestTokensInSecrets: a Secret of type service-account-token gets a token, which is valid as long
// as the Secret and the account exist.
func TestTokensInSecrets(t *testing.T) {
	s := withoutNode(t)
	s.kubectl("create", "serviceaccount", "robot")
	tokenIn := func(secret string) string {
		t.Helper()
		s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`, secret))
		var token string
		s.eventually("a token in "+secret, func() error {
			data := s.jsonpath("{.data.token} {.data.namespace} {.data.ca\\.crt}", "secret", secret)
			parts := strings.Fields(data)
			if len(parts) != 3 {
				return errors.New(data)
			}
			decoded, err := base64.StdEncoding.DecodeString(parts[0])
			token = string(decoded)
			return err
		})
		return token
	}
	refused := func(what, token string) {
		t.Helper()
		s.eventually(what, func() error {
			if who, err := s.whoIs(token); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("%s, %v", who.Username, err)
			}
			return nil
		})
	}

	first, second := tokenIn("first"), tokenIn("second")
	for _, token := range []string{first, second} {
		if who, err := s.whoIs(token); err != nil || who.Username != "system:serviceaccount:"+s.namespace+":robot" {
			t.Fatalf("%s, %v", who.Username, err)
		}
	}
	if used := s.jsonpath(`{.metadata.labels.kubernetes\.io/legacy-token-last-used}`, "secret", "first"); used != time.Now().UTC().Format(time.DateOnly) {
		t.Errorf("last used %q", used)
	}
	s.kubectl("label", "secret", "second", "kubernetes.io/legacy-token-invalid-since=2026-01-01")
	refused("a token that is marked invalid is refused", second)
	s.kubectl("label", "secret", "second", "kubernetes.io/legacy-token-invalid-since-")
	s.kubectl("delete", "secret", "first")
	refused("a token whose Secret is gone is refused", first)
	s.kubectl("delete", "serviceaccount", "robot")
	s.gone("secret", "second")
	refused("a token whose account is gone is refused", second)
	// A Secret for an account that does not exist is deleted.
	s.apply(`
apiVersion: v1
kind: Secret
metadata: {name: nobodys, annotations: {kubernetes.io/service-account.name: nobody}}
type: kubernetes.io/service-account-token
`)
	s.gone("secret", "nobodys")
}

// TestBootstrapTokens: each valid token signs cluster-info, and expired tokens are deleted.
func TestBootstrapTokens(t *testing.T) {
	s := inNamespace(t, ownCluster(t, "--no-node", "--simulated-nodes", "1"), "kube-system")
	s.kubectl("create", "configmap", "cluster-info", "--namespace", "kube-public", "--from-literal=kubeconfig=the content")
	s.apply(`
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: abcdef
  token-secret: 0123456789abcdef
  usage-bootstrap-signing: "true"
`)
	signature := func(want bool) func() error {
		return func() error {
			got := s.kubectl("get", "configmap", "cluster-info", "--namespace", "kube-public", "-o", "jsonpath={.data.jws-kubeconfig-abcdef}")
			if strings.HasPrefix(got, "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..") != want {
				return fmt.Errorf("signature %q", got)
			}
			return nil
		}
	}
	s.eventually("cluster-info is signed", signature(true))
	s.kubectl("patch", "secret", "bootstrap-token-abcdef", "-p", fmt.Sprintf(`{"stringData":{"expiration":%q}}`, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339)))
	s.gone("secret", "bootstrap-token-abcdef")
	s.eventually("the signature is gone", signature(false))
}
