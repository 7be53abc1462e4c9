// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// tokenSecrets selects the Secrets that hold tokens.
var tokenSecrets = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))

// isListed reports whether an account lists a Secret. Only users and the token controllers of
// old releases add Secrets to that list.
func isListed(account *corev1.ServiceAccount, secret string) bool {
	for _, ref := range account.Secrets {
		if ref.Name == secret {
			return true
		}
	}
	return false
}
