// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/cluster-bootstrap/token/jws"
)

// TestInvite: what an invitation makes is what Discover trusts, and a second one adds a token.
func TestInvite(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client := fake.NewClientset()
	go act(t.Context(), client)
	expires := time.Now().Add(time.Hour)
	for _, description := range []string{"one", "two"} {
		i, err := Invite(t.Context(), client, Offer{Server: "https://10.0.0.1:6443", CA: ca, Expires: expires, Description: description})
		if err != nil {
			t.Fatal(err)
		}
		info, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id, secret, _ := strings.Cut(i.Token, ".")
		if trusted, err := authority(info, id, secret, i.Hash); err != nil || string(trusted) != string(ca) {
			t.Errorf("%s: %q, %v", description, trusted, err)
		}
	}
	all, err := Tokens(t.Context(), client, time.Now())
	if err != nil || len(all) != 2 || !all[0].Expires.Equal(expires.Truncate(time.Second)) {
		t.Fatalf("tokens: %+v, %v", all, err)
	}
	if later, err := Tokens(t.Context(), client, expires.Add(time.Minute)); err != nil || len(later) != 0 {
		t.Errorf("tokens that have expired: %+v, %v", later, err)
	}
	if err := Revoke(t.Context(), client, all[0].ID); err != nil {
		t.Error(err)
	}
	if err := Revoke(t.Context(), client, all[0].ID); err == nil || !strings.Contains(err.Error(), "has no token") {
		t.Errorf("revoked again: %v", err)
	}
	if err := Revoke(t.Context(), client, "x"); err == nil || !strings.Contains(err.Error(), "is no token") {
		t.Errorf("no token: %v", err)
	}
}

// act does what the API and the signer do with new tokens until ctx ends: it signs cluster-info, and stores what Secrets have as text.
func act(ctx context.Context, client kubernetes.Interface) {
	for ctx.Err() == nil {
		tokens, _ := client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		for i := range tokens.Items {
			if secret := &tokens.Items[i]; len(secret.StringData) > 0 {
				signWith(ctx, client, secret)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func signWith(ctx context.Context, client kubernetes.Interface, secret *corev1.Secret) {
	given := secret.StringData
	secret.Data, secret.StringData = map[string][]byte{}, nil
	for key, value := range given {
		secret.Data[key] = []byte(value)
	}
	_, _ = client.CoreV1().Secrets(metav1.NamespaceSystem).Update(ctx, secret, metav1.UpdateOptions{})
	infos, id := client.CoreV1().ConfigMaps(metav1.NamespacePublic), given["token-id"]
	info, err := infos.Get(ctx, "cluster-info", metav1.GetOptions{})
	if err != nil {
		return
	}
	info.Data["jws-kubeconfig-"+id], _ = jws.ComputeDetachedSignature(info.Data["kubeconfig"], id, given["token-secret"])
	_, _ = infos.Update(ctx, info, metav1.UpdateOptions{})
}

// TestInviteWithToken: a given token is made known, and may be offered again, for another time.
func TestInviteWithToken(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	client := fake.NewClientset()
	go act(t.Context(), client)
	offer := Offer{
		Server: "https://10.0.0.1:6443", CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		Token: tokenID + "." + tokenSecret, Expires: time.Now().Add(time.Hour).Truncate(time.Second),
	}
	for range 2 {
		if i, err := Invite(t.Context(), client, offer); err != nil || i.Token != offer.Token {
			t.Fatalf("%+v, %v", i, err)
		}
		known := func() bool {
			all, err := Tokens(t.Context(), client, time.Now())
			return err == nil && len(all) == 1 && all[0].ID == tokenID && all[0].Expires.Equal(offer.Expires)
		}
		for start := time.Now(); !known(); time.Sleep(time.Millisecond) {
			if time.Since(start) > 10*time.Second {
				t.Fatalf("no token that expires at %v", offer.Expires)
			}
		}
		offer.Expires = offer.Expires.Add(time.Hour)
	}
	offer.Token = tokenID + ".ffffffffffffffff"
	if _, err := Invite(t.Context(), client, offer); err == nil || !strings.Contains(err.Error(), "has another token with the ID "+tokenID) {
		t.Errorf("another secret: %v", err)
	}
	offer.Token = "x"
	if _, err := Invite(t.Context(), client, offer); err == nil || !strings.Contains(err.Error(), "the token: ") {
		t.Errorf("no token: %v", err)
	}
}

func TestMembership(t *testing.T) {
	path := filepath.Join(t.TempDir(), "membership.json")
	if m, err := ReadMembership(path); err != nil || m.Server != "" {
		t.Errorf("none: %+v, %v", m, err)
	}
	want := Membership{Server: "https://10.0.0.1:6443", Node: "n", CA: []byte("ca")}
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMembership(path); err != nil || m.Server != want.Server || m.Node != want.Node || string(m.CA) != "ca" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestHashOf: the hash is that of the key, not of the certificate, so that a renewed authority has the same.
func TestHashOf(t *testing.T) {
	a, b := &x509.Certificate{RawSubjectPublicKeyInfo: []byte("key"), Raw: []byte("one")}, &x509.Certificate{RawSubjectPublicKeyInfo: []byte("key"), Raw: []byte("other")}
	if HashOf(a) != HashOf(b) || !strings.HasPrefix(HashOf(a), "sha256:") || len(HashOf(a)) != len("sha256:")+64 {
		t.Errorf("%s, %s", HashOf(a), HashOf(b))
	}
}
