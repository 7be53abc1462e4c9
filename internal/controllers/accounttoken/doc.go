// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accounttoken looks after Secrets of the type
// kubernetes.io/service-account-token: tokens of service accounts as they were before
// there were bound ones (KEP-1205), without an end. They are still given to whoever
// makes such a Secret by hand; fill.go does, and deletes it with its account. Those
// that clusters once made for every account are marked invalid when nobody has used
// them for a year, and deleted after another one (retire.go, KEP-2799).
package accounttoken

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// tokenSecrets chooses them among all Secrets.
var tokenSecrets = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))

// references reports whether an account lists a Secret as its own. Nobody but former
// token controllers and hands wrote there.
func references(account *corev1.ServiceAccount, secret string) bool {
	for _, ref := range account.Secrets {
		if ref.Name == secret {
			return true
		}
	}
	return false
}
