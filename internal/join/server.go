// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	bootstrap "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/tokens"
)

// keySize is the size of the key that encrypts a cluster's keys: that of AES-256.
const keySize = 32

// ServerInvitation is what a machine must know to become a server of a cluster.
type ServerInvitation struct {
	Invitation
	// Key decrypts the cluster's keys: hexadecimal digits.
	Key string
}

// InviteServer lets the machines that an invitation admits become servers: it stores the cluster's keys, encrypted with a key that
// only the invitation has, as kubeadm does. They are files by name. The Secret, and the role that reads it, are owned by the token,
// and collected when that is deleted or expires.
func InviteServer(ctx context.Context, client kubernetes.Interface, i Invitation, files map[string][]byte) (ServerInvitation, error) {
	id, _, err := tokens.ParseToken(i.Token)
	if err != nil {
		return ServerInvitation{}, err
	}
	token, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, tokenutil.BootstrapTokenSecretName(id), metav1.GetOptions{})
	if err != nil {
		return ServerInvitation{}, fmt.Errorf("read the token: %w", err)
	}
	key := make([]byte, keySize)
	rand.Read(key)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: token.Name, UID: token.UID}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: keysName(id), OwnerReferences: []metav1.OwnerReference{owner}},
		Data:       map[string][]byte{},
	}
	for name, content := range files {
		if secret.Data[name], err = encrypt(key, content); err != nil {
			return ServerInvitation{}, err
		}
	}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return ServerInvitation{}, fmt.Errorf("store the cluster's keys: %w", err)
	}
	if err := allowKeys(ctx, client, id, owner); err != nil {
		return ServerInvitation{}, fmt.Errorf("the role that reads the cluster's keys: %w", err)
	}
	return ServerInvitation{i, hex.EncodeToString(key)}, nil
}

// keysName is the name of the Secret with the keys for a token, and of the role that reads it.
func keysName(token string) string { return "kindred-server-keys-" + token }

// allowKeys lets the user with a token read the keys for it.
func allowKeys(ctx context.Context, client kubernetes.Interface, token string, owner metav1.OwnerReference) error {
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	name := keysName(token)
	owned := applymetav1.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID)
	role := applyrbacv1.Role(name, metav1.NamespaceSystem).WithOwnerReferences(owned).WithRules(
		applyrbacv1.PolicyRule().WithAPIGroups("").WithResources("secrets").WithResourceNames(name).WithVerbs("get"))
	if _, err := client.RbacV1().Roles(metav1.NamespaceSystem).Apply(ctx, role, options); err != nil {
		return err
	}
	binding := applyrbacv1.RoleBinding(name, metav1.NamespaceSystem).WithOwnerReferences(owned).
		WithRoleRef(roleRef("Role", name)).WithSubjects(subjectOf(rbacv1.UserKind, bootstrap.BootstrapUserPrefix+token))
	_, err := client.RbacV1().RoleBindings(metav1.NamespaceSystem).Apply(ctx, binding, options)
	return err
}

// Keys returns the cluster's keys, by the names of their files. ca is the cluster's authority, as Discover returns it.
func Keys(ctx context.Context, i ServerInvitation, ca []byte) (map[string][]byte, error) {
	id, _, err := tokens.ParseToken(i.Token)
	if err != nil {
		return nil, fmt.Errorf("the token: %w", err)
	}
	key, err := hex.DecodeString(i.Key)
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("the certificate key must be %d hexadecimal digits", 2*keySize)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: i.Server, BearerToken: i.Token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1})
	if err != nil {
		return nil, err
	}
	secret, err := readKeys(ctx, client, keysName(id))
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the token admits nodes and no servers; \"kindred token create --server\" makes one that does: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read the cluster's keys from %s: %w", i.Server, err)
	}
	files := map[string][]byte{}
	for name, content := range secret.Data {
		if files[name], err = decrypt(key, content); err != nil {
			return nil, errors.New("the certificate key is not the one of the token")
		}
	}
	return files, nil
}

// The servers' authorizers know the role of a new token a moment after it was stored: they watch roles.
const (
	roleLimit = 3 * time.Second
	rolePause = 100 * time.Millisecond
)

// readKeys reads the Secret with the keys. It waits for the role that allows it; no request is cut off by the end of that wait.
func readKeys(ctx context.Context, client kubernetes.Interface, name string) (secret *corev1.Secret, err error) {
	var refused error
	failed := wait.PollUntilContextTimeout(ctx, rolePause, roleLimit, true, func(context.Context) (bool, error) {
		secret, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			refused = err
			return false, nil
		}
		return true, err
	})
	if wait.Interrupted(failed) && refused != nil {
		return nil, refused
	}
	return secret, failed
}

func encrypt(key, plain []byte) ([]byte, error) {
	sealer, err := sealerOf(key)
	if err != nil {
		return nil, err
	}
	return sealer.Seal(nil, nil, plain, nil), nil
}

func decrypt(key, sealed []byte) ([]byte, error) {
	sealer, err := sealerOf(key)
	if err != nil {
		return nil, err
	}
	return sealer.Open(nil, nil, sealed, nil)
}

func sealerOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
