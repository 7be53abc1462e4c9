// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// serviceAccount returns the kind ServiceAccount, an identity for pods. The subresource token
// issues tokens.
func serviceAccount(tokens TokenIssuer) generic.Kind[*corev1.ServiceAccount] {
	return generic.Kind[*corev1.ServiceAccount]{
		Name: "ServiceAccount", Plural: "serviceaccounts", ShortNames: []string{"sa"},
		Metadata: generic.Metadata{ValidateAsNew: true, ValidName: validation.ValidateServiceAccountName},
		New:      func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		NewList:  func() runtime.Object { return &corev1.ServiceAccountList{} },
		Deletion: generic.Deletion[*corev1.ServiceAccount]{ReturnObject: true},
		Prepare:  prepareServiceAccount,
		Warnings: warnMountableSecrets,
		Endpoints: generic.Endpoints{Subresources: func(store *generic.Store) map[string]rest.Storage {
			return map[string]rest.Storage{"token": tokenStore{tokens}}
		}},
	}
}

// prepareServiceAccount reduces references to Secrets to the names: Secrets are always in the
// account's namespace.
func prepareServiceAccount(_ context.Context, s, _ *corev1.ServiceAccount) {
	for i, secret := range s.Secrets {
		s.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}

const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func warnMountableSecrets(_ context.Context, s, old *corev1.ServiceAccount) []string {
	if old != nil && metav1.HasAnnotation(old.ObjectMeta, enforceMountableSecrets) {
		return nil
	}
	if !metav1.HasAnnotation(s.ObjectMeta, enforceMountableSecrets) {
		return nil
	}
	return []string{"metadata.annotations[" + enforceMountableSecrets + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}
