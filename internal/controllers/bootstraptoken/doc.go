// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken holds the controllers of bootstrap tokens: Secrets in kube-system by
// which a new machine joins a cluster. The signer signs the ConfigMap cluster-info in
// kube-public, if it exists, with each token, so that a machine with the token can verify
// its content. The cleaner deletes expired tokens.
package bootstraptoken

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// tokens returns a cache of only the Secrets with bootstrap tokens.
func tokens(env control.Env) (cache.Cache, error) {
	return env.Select(&corev1.Secret{}, metav1.NamespaceSystem, fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken)))
}
