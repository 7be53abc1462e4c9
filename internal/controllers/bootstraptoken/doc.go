// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstraptoken looks after bootstrap tokens: Secrets in kube-system with
// which a machine that knows nothing of a cluster joins it. With each token the
// signer signs the ConfigMap cluster-info, wherever somebody made one, so that who
// has the token can trust what is written there; the cleaner deletes tokens whose
// time is over.
package bootstraptoken

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// tokens returns a cache of bootstrap tokens, and of no other Secrets.
func tokens(env control.Env) (cache.Cache, error) {
	return env.Select(&corev1.Secret{}, metav1.NamespaceSystem, fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken)))
}
