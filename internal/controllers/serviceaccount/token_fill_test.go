// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func account(name, uid string, secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	for _, secret := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: secret})
	}
	return a
}

func secret(name, account, uid string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{},
	}
	if uid != "" {
		s.Annotations[corev1.ServiceAccountUIDKey] = uid
	}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func newFiller(cached, live client.Client) *filler {
	return &filler{client: cached, live: live, secrets: cached, ca: []byte("PEM"), issue: func(a *corev1.ServiceAccount, secret string) (string, error) {
		return "token of " + a.Name + " in " + secret, nil
	}}
}

func held(s *corev1.Secret) *corev1.Secret {
	s.Annotations[ownership.HoldAnnotation] = ""
	return s
}

func TestTokensAreFilledIn(t *testing.T) {
	ctx := context.Background()
	whole := map[string]string{"ca.crt": "PEM", "namespace": "ns", "token": "token of a in s"}
	for name, tt := range map[string]struct {
		secret *corev1.Secret
		cached []client.Object // if different from live
		live   []client.Object
		want   map[string]string // nil: deleted
	}{
		"empty":                     {secret("s", "a", "", nil), nil, []client.Object{account("a", "1")}, whole},
		"empty, account not cached": {secret("s", "a", "1", nil), []client.Object{}, []client.Object{account("a", "1")}, whole},
		"another CA, existing token": {
			secret("s", "a", "1", map[string]string{"ca.crt": "old", "token": "mine", "namespace": "x", "more": "y"}), nil, []client.Object{account("a", "1")},
			map[string]string{"ca.crt": "PEM", "namespace": "x", "token": "mine", "more": "y"},
		},
		"no account":                   {secret("s", "a", "", nil), nil, nil, nil},
		"another account of that name": {secret("s", "a", "1", whole), nil, []client.Object{account("a", "2")}, nil},
		"already filled in":            {secret("s", "a", "1", whole), nil, []client.Object{account("a", "1")}, whole},
		"on hold, no account":          {held(secret("s", "a", "1", map[string]string{"token": "mine"})), nil, nil, map[string]string{"token": "mine"}},
		"on hold, account exists":      {held(secret("s", "a", "1", nil)), nil, []client.Object{account("a", "1")}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithObjects(append(tt.live, tt.secret)...).Build()
			f := newFiller(api, api)
			if tt.cached != nil {
				f.client = stale{api, fake.NewClientBuilder().WithObjects(tt.cached...).Build()}
			}
			for range 2 {
				if _, err := f.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "s"}}); err != nil {
					t.Fatal(err)
				}
			}
			found := &corev1.Secret{}
			err := api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "s"}, found)
			if tt.want == nil {
				if !apierrors.IsNotFound(err) {
					t.Errorf("not deleted: %v", err)
				}
				return
			}
			got := map[string]string{}
			for key, value := range found.Data {
				got[key] = string(value)
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v, data (-want +got):\n%s", err, diff)
			}
			if found.Annotations[corev1.ServiceAccountUIDKey] != "1" {
				t.Errorf("annotations %v", found.Annotations)
			}
		})
	}
}

// stale writes to a client and reads from a stale cache.
type stale struct {
	client.Client
	cache client.Reader
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return s.cache.Get(ctx, key, obj, opts...)
}

func TestDeletedSecretIsUnlisted(t *testing.T) {
	ctx := context.Background()
	opaque := secret("opaque", "", "", nil)
	opaque.Type = corev1.SecretTypeOpaque
	api := fake.NewClientBuilder().WithObjects(account("a", "1", "deleted", "other"), account("b", "2", "other", "opaque"), opaque).Build()
	f := newFiller(api, api)
	f.secrets = fake.NewClientBuilder().Build()
	for _, name := range []string{"deleted", "opaque"} {
		if _, err := f.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
	for name, into := range map[string]*corev1.ServiceAccount{"a": a, "b": b} {
		if err := api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: name}, into); err != nil {
			t.Fatal(err)
		}
	}
	if isListed(a, "deleted") || !isListed(a, "other") || !isListed(b, "other") || !isListed(b, "opaque") {
		t.Errorf("a lists %v, b %v", a.Secrets, b.Secrets)
	}
}

func TestDeletedAccountWakesItsSecrets(t *testing.T) {
	api := fake.NewClientBuilder().WithObjects(secret("s1", "a", "", nil), secret("s2", "b", "", nil)).Build()
	if got := newFiller(api, api).tokensOf(context.Background(), account("a", "1")); len(got) != 1 || got[0].Name != "s1" {
		t.Errorf("wakes %v", got)
	}
	if accountDeletions.Update(event.UpdateEvent{ObjectOld: account("a", "1"), ObjectNew: account("a", "1")}) || accountDeletions.Create(event.CreateEvent{Object: account("a", "1")}) ||
		!accountDeletions.Update(event.UpdateEvent{ObjectOld: account("a", "1"), ObjectNew: account("a", "2")}) || !accountDeletions.Delete(event.DeleteEvent{Object: account("a", "1")}) {
		t.Error("accountDeletions passes the wrong events")
	}
}
