// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestKeysOfANewToken: the keys are read as soon as the servers know the role of a new token, and not without one.
func TestKeysOfANewToken(t *testing.T) {
	for name, tt := range map[string]struct {
		refusals int
		want     bool
	}{"at once": {0, true}, "a moment later": {3, true}, "never": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, asked := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "keys"}}), 0
				client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					asked++
					return asked <= tt.refusals, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "keys", nil)
				})
				secret, err := readKeys(t.Context(), client, "keys")
				if got := err == nil && secret.Name == "keys"; got != tt.want || !tt.want && !apierrors.IsForbidden(err) {
					t.Errorf("got %v, %v", secret, err)
				}
			})
		})
	}
}
