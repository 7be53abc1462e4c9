// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstraptoken

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// token returns a valid token with the given changes. An empty value removes the key.
func token(id string, changes map[string]string) *corev1.Secret {
	data := map[string][]byte{
		"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true"),
	}
	for key, value := range changes {
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token", Data: data}
}

// The example is that of upstream's tests.
func TestSignature(t *testing.T) {
	got := signature("Hello from the other side. I must have called a thousand times.", "joshua", "my voice is my passcode")
	if want := "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTokensForSigning(t *testing.T) {
	for name, tt := range map[string]struct {
		secret *corev1.Secret
		want   bool
	}{
		"valid":                 {token("abcdef", nil), true},
		"not yet expired":       {token("abcdef", map[string]string{"expiration": start.Add(time.Hour).Format(time.RFC3339)}), true},
		"expired":               {token("abcdef", map[string]string{"expiration": start.Add(-time.Hour).Format(time.RFC3339)}), false},
		"invalid expiration":    {token("abcdef", map[string]string{"expiration": "tomorrow"}), false},
		"not for signing":       {token("abcdef", map[string]string{"usage-bootstrap-signing": "no"}), false},
		"name of another token": {token("abcdef", map[string]string{"token-id": "abcdeg"}), false},
		"no id":                 {token("abcdef", map[string]string{"token-id": ""}), false},
		"no secret":             {token("abcdef", map[string]string{"token-secret": ""}), false},
		"invalid name":          {token("ABC", nil), false},
	} {
		if _, _, ok := forSigning(tt.secret, start); ok != tt.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func TestClusterInfoIsSigned(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		data map[string]string
		want map[string]string
	}{
		"signed, and signatures of deleted tokens removed": {
			map[string]string{"kubeconfig": "K", "jws-kubeconfig-gone00": "x", "jws-kubeconfig-abcdef": "old", "other": "y"},
			map[string]string{"kubeconfig": "K", "jws-kubeconfig-abcdef": signature("K", "abcdef", "0123456789abcdef"), "other": "y"},
		},
		"no kubeconfig to sign": {map[string]string{"other": "y", "jws-kubeconfig-gone00": "x"}, map[string]string{"other": "y", "jws-kubeconfig-gone00": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: tt.data}
			api := fake.NewClientBuilder().WithObjects(info, token("abcdef", nil), token("ghijkl", map[string]string{"token-secret": ""})).Build()
			s := &signer{client: api, secrets: api, clock: testingclock.NewFakePassiveClock(start)}
			versions := map[string]bool{}
			for range 2 {
				if _, err := s.Reconcile(ctx, ctrl.Request{NamespacedName: clusterInfo}); err != nil {
					t.Fatal(err)
				}
				if err := api.Get(ctx, clusterInfo, info); err != nil {
					t.Fatal(err)
				}
				versions[info.ResourceVersion] = true
			}
			if diff := cmp.Diff(tt.want, info.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if len(versions) != 1 {
				t.Error("an unchanged ConfigMap was written")
			}
		})
	}
	api := fake.NewClientBuilder().Build()
	s := &signer{client: api, secrets: api, clock: testingclock.NewFakePassiveClock(start)}
	if _, err := s.Reconcile(ctx, ctrl.Request{NamespacedName: clusterInfo}); err != nil {
		t.Errorf("without a ConfigMap: %v", err)
	}
}

func TestExpiredTokensAreDeleted(t *testing.T) {
	ctx := context.Background()
	clock := testingclock.NewFakePassiveClock(start)
	api := fake.NewClientBuilder().WithObjects(token("abcdef", map[string]string{"expiration": start.Add(time.Hour).Format(time.RFC3339)}), token("ghijkl", nil)).Build()
	c := &cleaner{client: api, secrets: api, clock: clock}
	reconcile := func(id string) time.Duration {
		t.Helper()
		result, err := c.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(token(id, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	if wait := reconcile("abcdef"); wait != time.Hour {
		t.Errorf("requeued after %v", wait)
	}
	if wait := reconcile("ghijkl"); wait != 0 {
		t.Errorf("a token without expiry is requeued after %v", wait)
	}
	clock.SetTime(start.Add(time.Hour + time.Second))
	for _, id := range []string{"abcdef", "ghijkl", "abcdef"} {
		reconcile(id)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(token("abcdef", nil)), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the expired token was not deleted: %v", err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(token("ghijkl", nil)), &corev1.Secret{}); err != nil {
		t.Errorf("a token without expiry was deleted: %v", err)
	}
}
