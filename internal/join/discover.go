// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/tokens"
	"k8s.io/utils/clock"
)

// discoverLimit limits each request to a server that is not trusted yet.
const discoverLimit = 10 * time.Second

// hashPrefix begins the hash of an authority's key.
const hashPrefix = "sha256:"

// Invitation is what a machine must know to join a cluster.
type Invitation struct {
	// Server is the URL of the API, Token a bootstrap token.
	Server, Token string
	// Hash is that of the key of the cluster's authority, as [HashOf] returns it.
	Hash string
	// Wait limits the time that the machine waits for a cluster that cannot be joined yet, see [IsPending].
	Wait time.Duration
}

// pending is why a cluster cannot be joined yet.
type pending struct{ error }

func (p pending) Unwrap() error { return p.error }

// IsPending reports whether an error may pass without a change of the invitation: the server does not answer, or does not know the token yet.
func IsPending(err error) bool { return errors.As(err, new(pending)) }

// HashOf returns the hash of the public key of an authority, in kubeadm's form: sha256: and hexadecimal digits.
func HashOf(authority *x509.Certificate) string {
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Discover returns the certificates of the cluster's authority, in PEM. It trusts the server only if the ConfigMap cluster-info
// is signed with the token, and the hash is that of an authority in it (kubeadm's token-based discovery with pinning).
func Discover(ctx context.Context, i Invitation, clock clock.PassiveClock) (ca []byte, err error) {
	id, secret, err := tokens.ParseToken(i.Token)
	if err != nil {
		return nil, fmt.Errorf("the token: %w", err)
	}
	var skew time.Duration
	noting := observing(clock, func(observed time.Duration) { skew = observed })
	config := &rest.Config{Host: i.Server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, WrapTransport: noting, Timeout: discoverLimit}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrap.ConfigMapClusterInfo, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return nil, pending{fmt.Errorf("the cluster at %s admits no machines; run \"kindred token create\" there: %w", i.Server, err)}
	case err != nil:
		return nil, pending{fmt.Errorf("read the cluster's authority from %s: %w", i.Server, err)}
	}
	if ca, err = authority(info, id, secret, i.Hash); err != nil {
		return nil, err
	}
	return ca, checkSkew(skew)
}

// authority returns the authority that a cluster-info has, if it can be trusted.
func authority(info *corev1.ConfigMap, id, secret, hash string) ([]byte, error) {
	content := info.Data[bootstrap.KubeConfigKey]
	signature := info.Data[bootstrap.JWSSignatureKeyPrefix+id]
	if signature == "" {
		return nil, pending{errors.New("the cluster does not know the token, or it has expired; \"kindred token create\" there makes a new one")}
	}
	if !jws.DetachedTokenIsValid(signature, content, id, secret) {
		return nil, errors.New("the token is wrong, or the server is not of its cluster: the signature of the cluster's authority does not match")
	}
	config, err := clientcmd.Load([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("cluster-info: %w", err)
	}
	for _, cluster := range config.Clusters {
		if err := verify(cluster.CertificateAuthorityData, hash); err != nil {
			return nil, err
		}
		return cluster.CertificateAuthorityData, nil
	}
	return nil, errors.New("cluster-info has no cluster")
}

// verify returns an error unless one of the certificates has the hash.
func verify(ca []byte, hash string) error {
	certificates, err := cert.ParseCertsPEM(ca)
	if err != nil {
		return fmt.Errorf("the cluster's authority: %w", err)
	}
	for _, c := range certificates {
		if subtle.ConstantTimeCompare([]byte(HashOf(c)), []byte(hash)) == 1 {
			return nil
		}
	}
	return fmt.Errorf("the cluster's authority has the hash %s, not %s: this is another cluster, or somebody is in between", HashOf(certificates[0]), hash)
}
