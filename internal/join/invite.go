// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// fieldManager is the manager of what an invitation makes.
const fieldManager = "kindred-token"

// signingLimit is how long the cluster may take to sign cluster-info with a new token.
const signingLimit = 30 * time.Second

// Offer is what machines are invited with.
type Offer struct {
	// Server is the URL at which machines reach the API.
	Server string
	// CA are the certificates of the cluster's authority, in PEM.
	CA []byte
	// Token is the bootstrap token; if it is empty, Invite makes one.
	Token string
	// Expires is the end of the token.
	Expires time.Time
	// Description says what the token is for.
	Description string
}

// Invite makes a token with which machines can join for some time, and what they need in the cluster: the signed ConfigMap
// cluster-info, and roles. A token that the cluster has already gets the time and the description of the offer.
func Invite(ctx context.Context, client kubernetes.Interface, o Offer) (Invitation, error) {
	certificates, err := cert.ParseCertsPEM(o.CA)
	if err != nil {
		return Invitation{}, fmt.Errorf("the cluster's authority: %w", err)
	}
	if o.Token == "" {
		if o.Token, err = tokenutil.GenerateBootstrapToken(); err != nil {
			return Invitation{}, err
		}
	}
	id, secret, err := tokens.ParseToken(o.Token)
	if err != nil {
		return Invitation{}, fmt.Errorf("the token: %w", err)
	}
	if err := publish(ctx, client, o.Server, o.CA); err != nil {
		return Invitation{}, fmt.Errorf("publish the cluster's authority: %w", err)
	}
	if err := ensureRoles(ctx, client); err != nil {
		return Invitation{}, fmt.Errorf("the roles of machines that join: %w", err)
	}
	if err := store(ctx, client, secretOf(id, secret, o.Expires, o.Description)); err != nil {
		return Invitation{}, fmt.Errorf("store the token: %w", err)
	}
	return Invitation{Server: o.Server, Token: o.Token, Hash: HashOf(certificates[0])}, awaitSignature(ctx, client, id)
}

// store creates the Secret of a token, or updates that of the same token.
func store(ctx context.Context, client kubernetes.Interface, wanted *corev1.Secret) error {
	all := client.CoreV1().Secrets(metav1.NamespaceSystem)
	_, err := all.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := all.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if secrets.GetData(existing, bootstrap.BootstrapTokenSecretKey) != wanted.StringData[bootstrap.BootstrapTokenSecretKey] {
		return fmt.Errorf("the cluster has another token with the ID %s", wanted.StringData[bootstrap.BootstrapTokenIDKey])
	}
	existing.StringData = wanted.StringData
	_, err = all.Update(ctx, existing, metav1.UpdateOptions{})
	return err
}

func secretOf(id, secret string, expires time.Time, description string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenutil.BootstrapTokenSecretName(id)},
		Type:       bootstrap.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrap.BootstrapTokenIDKey: id, bootstrap.BootstrapTokenSecretKey: secret,
			bootstrap.BootstrapTokenExpirationKey: expires.UTC().Format(time.RFC3339), bootstrap.BootstrapTokenDescriptionKey: description,
			bootstrap.BootstrapTokenUsageAuthentication: "true", bootstrap.BootstrapTokenUsageSigningKey: "true",
			bootstrap.BootstrapTokenExtraGroupsKey: machines,
		},
	}
}

// publish writes the ConfigMap cluster-info, which anonymous users may read. Its signatures are another manager's.
func publish(ctx context.Context, client kubernetes.Interface, server string, ca []byte) error {
	info, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"": {Server: server, CertificateAuthorityData: ca}}})
	if err != nil {
		return err
	}
	wanted := applycorev1.ConfigMap(bootstrap.ConfigMapClusterInfo, metav1.NamespacePublic).WithData(map[string]string{bootstrap.KubeConfigKey: string(info)})
	_, err = client.CoreV1().ConfigMaps(metav1.NamespacePublic).Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// awaitSignature waits until machines with the token can trust cluster-info.
func awaitSignature(ctx context.Context, client kubernetes.Interface, id string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, signingLimit, true, func(ctx context.Context) (bool, error) {
		info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrap.ConfigMapClusterInfo, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return info.Data[bootstrap.JWSSignatureKeyPrefix+id] != "", nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the cluster has not signed its authority with the token within %v: is its controller manager running?", signingLimit)
	}
	return err
}

// Token is a token with which machines can join, without its secret.
type Token struct {
	ID, Description string
	// Expires is the zero time if it does not.
	Expires time.Time
}

// Tokens returns the cluster's bootstrap tokens.
func Tokens(ctx context.Context, client kubernetes.Interface, now time.Time) ([]Token, error) {
	found, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(bootstrap.SecretTypeBootstrapToken)})
	if err != nil {
		return nil, err
	}
	var all []Token
	for i := range found.Items {
		secret := &found.Items[i]
		if secrets.HasExpired(secret, now) {
			continue
		}
		token := Token{ID: secrets.GetData(secret, bootstrap.BootstrapTokenIDKey), Description: secrets.GetData(secret, bootstrap.BootstrapTokenDescriptionKey)}
		if expires := secrets.GetData(secret, bootstrap.BootstrapTokenExpirationKey); expires != "" {
			token.Expires, _ = time.Parse(time.RFC3339, expires) // HasExpired has parsed it
		}
		all = append(all, token)
	}
	return all, nil
}

// Revoke deletes a token, given as a whole or by its ID. Machines that have joined with it stay.
func Revoke(ctx context.Context, client kubernetes.Interface, token string) error {
	id := token
	if whole, _, err := tokens.ParseToken(token); err == nil {
		id = whole
	}
	if !tokenutil.IsValidBootstrapTokenID(id) {
		return fmt.Errorf("%q is no token and no ID of one, which has six letters and digits", token)
	}
	err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, tokenutil.BootstrapTokenSecretName(id), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no token %s", id)
	}
	return err
}
