// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newKeys(t testing.TB, signing *ecdsa.PrivateKey, former ...*ecdsa.PublicKey) *Keys {
	t.Helper()
	keys, err := NewKeys(signing, former...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// world is a cluster with one service account, app/web.
type world struct {
	client        *fake.Clientset
	informers     informers.SharedInformerFactory
	clock         *clocktesting.FakePassiveClock
	keys          *Keys
	issuer        *Issuer
	authenticator *Authenticator
}

func newWorld(t testing.TB) *world {
	t.Helper()
	pod := func(name, account, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta("app", name), Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node}}
	}
	w := &world{clock: clocktesting.NewFakePassiveClock(start), keys: newKeys(t, newKey(t))}
	w.client = fake.NewClientset(
		&corev1.ServiceAccount{ObjectMeta: meta("app", "web")},
		pod("p1", "web", "n1"), pod("unscheduled", "web", ""), pod("lost", "web", "gone"), pod("foreign", "other", "n1"),
		&corev1.Secret{ObjectMeta: meta("app", "s1")},
		&corev1.Node{ObjectMeta: meta("", "n1")},
	)
	w.informers = informers.NewSharedInformerFactory(nil, 0)
	objects := NewObjects(w.client, w.informers.Core().V1())
	audiences := []string{DefaultIssuerURL}
	w.issuer = NewIssuer(DefaultIssuerURL, w.keys, objects, audiences, w.clock)
	w.authenticator = NewAuthenticator(DefaultIssuerURL, w.keys, objects, audiences, w.clock)
	return w
}

// meta returns metadata with the UID "<name>-uid".
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}
}

func (w *world) request(t testing.TB, r *authenticationv1.TokenRequest) string {
	t.Helper()
	answer, err := w.issuer.Request(context.Background(), "app", "web", r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func boundTo(kind, name string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name},
	}}
}

func expiring(r *authenticationv1.TokenRequest, seconds int64) *authenticationv1.TokenRequest {
	r.Spec.ExpirationSeconds = &seconds
	return r
}

// payload returns the claims of a token, without the random jti.
func payload(t testing.TB, token string) map[string]any {
	t.Helper()
	all := payloadOf(t, token)
	if id, _ := all["jti"].(string); len(id) != 36 {
		t.Errorf("jti %q is not a UUID", id)
	}
	delete(all, "jti")
	return all
}

// payloadOf returns the claims of a token.
func payloadOf(t testing.TB, token string) map[string]any {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestClaims(t *testing.T) {
	account := map[string]any{"name": "web", "uid": "web-uid"}
	node := map[string]any{"name": "n1", "uid": "n1-uid"}
	at := float64(start.Unix())
	tests := []struct {
		name       string
		request    *authenticationv1.TokenRequest
		kubernetes map[string]any
		expires    float64 // seconds from now
		status     time.Duration
		audience   string
	}{
		{"unbound", &authenticationv1.TokenRequest{}, map[string]any{}, 3600, time.Hour, DefaultIssuerURL},
		{"bound to a pod", boundTo("Pod", "p1"),
			map[string]any{"pod": map[string]any{"name": "p1", "uid": "p1-uid"}, "node": node}, 3600, time.Hour, DefaultIssuerURL},
		{"bound to a pod without a node", boundTo("Pod", "unscheduled"),
			map[string]any{"pod": map[string]any{"name": "unscheduled", "uid": "unscheduled-uid"}}, 3600, time.Hour, DefaultIssuerURL},
		{"bound to a pod whose node is deleted", boundTo("Pod", "lost"),
			map[string]any{"pod": map[string]any{"name": "lost", "uid": "lost-uid"}, "node": map[string]any{"name": "gone"}}, 3600, time.Hour, DefaultIssuerURL},
		{"bound to a secret", boundTo("Secret", "s1"), map[string]any{"secret": map[string]any{"name": "s1", "uid": "s1-uid"}}, 3600, time.Hour, DefaultIssuerURL},
		{"bound to a node", boundTo("Node", "n1"), map[string]any{"node": node}, 3600, time.Hour, DefaultIssuerURL},
		{"a pod's own token lasts longer, with a warning", expiring(boundTo("Pod", "p1"), warnOnlyExpiration),
			map[string]any{"pod": map[string]any{"name": "p1", "uid": "p1-uid"}, "node": node, "warnafter": at + 3607}, 31536000, 3607 * time.Second, DefaultIssuerURL},
		{"a Secret's token does not last longer", expiring(boundTo("Secret", "s1"), warnOnlyExpiration),
			map[string]any{"secret": map[string]any{"name": "s1", "uid": "s1-uid"}}, 3607, 3607 * time.Second, DefaultIssuerURL},
		{"a token for another audience does not last longer", func() *authenticationv1.TokenRequest {
			r := expiring(boundTo("Pod", "unscheduled"), warnOnlyExpiration)
			r.Spec.Audiences = []string{"vault"}
			return r
		}(), map[string]any{"pod": map[string]any{"name": "unscheduled", "uid": "unscheduled-uid"}}, 3607, 3607 * time.Second, "vault"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			answer, err := w.issuer.Request(context.Background(), "app", "web", tt.request, nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.kubernetes["namespace"], tt.kubernetes["serviceaccount"] = "app", account
			want := map[string]any{
				"aud": []any{tt.audience}, "iss": DefaultIssuerURL, "sub": "system:serviceaccount:app:web",
				"iat": at, "nbf": at, "exp": at + tt.expires, "kubernetes.io": tt.kubernetes,
			}
			if diff := cmp.Diff(want, payload(t, answer.Status.Token)); diff != "" {
				t.Error(diff)
			}
			if got := answer.Status.ExpirationTimestamp.Sub(start); got != tt.status {
				t.Errorf("the status expires in %v, want %v", got, tt.status)
			}
			if answer.Name != "web" || answer.Namespace != "app" || answer.UID != "web-uid" || !answer.CreationTimestamp.Time.Equal(start) {
				t.Errorf("metadata not completed: %+v", answer.ObjectMeta)
			}
		})
	}
}

func TestHeader(t *testing.T) {
	w := newWorld(t)
	head, err := base64.RawURLEncoding.DecodeString(strings.Split(w.request(t, &authenticationv1.TokenRequest{}), ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"alg":"ES256","kid":"` + w.keys.all[0].id + `"}`; string(head) != want {
		t.Errorf("header %s, want %s", head, want)
	}
}

func TestRefusedRequests(t *testing.T) {
	withSpec := func(edit func(*authenticationv1.TokenRequest)) *authenticationv1.TokenRequest {
		r := boundTo("Pod", "p1")
		edit(r)
		return r
	}
	tests := []struct {
		name    string
		account string
		request *authenticationv1.TokenRequest
		admit   error
		reason  metav1.StatusReason
		message string
	}{
		{"no such account", "nobody", &authenticationv1.TokenRequest{}, nil, metav1.StatusReasonNotFound, `serviceaccounts "nobody" not found`},
		{"another name", "web", &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, nil, metav1.StatusReasonInvalid, "metadata.name: Invalid value: \"x\": must match the service account name if specified"},
		{"another namespace", "web", &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "x"}}, nil, metav1.StatusReasonInvalid, "must match the service account namespace if specified"},
		{"another UID", "web", &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, nil, metav1.StatusReasonConflict, "the UID in the token request (x) does not match the UID of the service account (web-uid)"},
		{"too short", "web", expiring(&authenticationv1.TokenRequest{}, 599), nil, metav1.StatusReasonInvalid, "may not specify a duration less than 10 minutes"},
		{"too long", "web", expiring(&authenticationv1.TokenRequest{}, 1<<32+1), nil, metav1.StatusReasonInvalid, "may not specify a duration larger than 2^32 seconds"},
		{"attestations", "web", withSpec(func(r *authenticationv1.TokenRequest) {
			r.Spec.Attestations = map[string]authenticationv1.AttestationValue{"a": {"b"}}
		}), nil, metav1.StatusReasonInvalid, "attestations may only be specified with a webhook"},
		{"not admitted", "web", boundTo("Pod", "p1"), apierrors.NewForbidden(schemaPods, "p1", errors.New("by policy")), metav1.StatusReasonForbidden, "by policy"},
		{"no such pod", "web", boundTo("Pod", "nope"), nil, metav1.StatusReasonNotFound, `pods "nope" not found`},
		{"another account's pod", "web", boundTo("Pod", "foreign"), nil, metav1.StatusReasonBadRequest, `cannot bind token for serviceaccount "web" to pod running with different serviceaccount name.`},
		{"no such secret", "web", boundTo("Secret", "nope"), nil, metav1.StatusReasonNotFound, `secrets "nope" not found`},
		{"no such node", "web", boundTo("Node", "nope"), nil, metav1.StatusReasonNotFound, `nodes "nope" not found`},
		{"no name", "web", boundTo("Pod", ""), nil, metav1.StatusReasonBadRequest, "Name parameter required."},
		{"invalid name", "web", boundTo("Secret", "a/b"), nil, metav1.StatusReasonBadRequest, `Name parameter invalid: "a/b": may not contain '/'`},
		{"unsupported kind", "web", boundTo("ConfigMap", "c"), nil, metav1.StatusReasonBadRequest, "cannot bind token to object of type /v1, Kind=ConfigMap"},
		{"recreated pod", "web", withSpec(func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.UID = "old" }), nil, metav1.StatusReasonConflict, "the UID in the bound object reference (old) does not match the UID in record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			admit := func(context.Context, runtime.Object) error { return tt.admit }
			answer, err := newWorld(t).issuer.Request(context.Background(), "app", tt.account, tt.request, admit)
			if apierrors.ReasonForError(err) != tt.reason || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %v (%s), want %s with %q", err, apierrors.ReasonForError(err), tt.reason, tt.message)
			}
			if answer != nil {
				t.Error("a refused request returned a token")
			}
		})
	}
}

var schemaPods = corev1.Resource("pods")

func TestRequestDoesNotModifyItsInput(t *testing.T) {
	r := boundTo("Pod", "p1")
	before := r.DeepCopy()
	newWorld(t).request(t, r)
	if diff := cmp.Diff(before, r); diff != "" {
		t.Error(diff)
	}
}

func TestAuthenticate(t *testing.T) {
	tests := []struct {
		name    string
		request *authenticationv1.TokenRequest
		change  func(t *testing.T, w *world)
		target  []string // of a TokenReview
		extra   map[string][]string
		want    string // the error; "" for authenticated
	}{
		{name: "unbound", request: &authenticationv1.TokenRequest{}, extra: map[string][]string{}},
		{name: "pod", request: boundTo("Pod", "p1"), extra: map[string][]string{
			"authentication.kubernetes.io/pod-name": {"p1"}, "authentication.kubernetes.io/pod-uid": {"p1-uid"},
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"n1-uid"}}},
		{name: "node", request: boundTo("Node", "n1"), extra: map[string][]string{
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"n1-uid"}}},
		{name: "secret", request: boundTo("Secret", "s1"), extra: map[string][]string{}},
		{name: "within the leeway", request: &authenticationv1.TokenRequest{}, change: at(time.Hour + leeway), extra: map[string][]string{}},
		{name: "expired", request: &authenticationv1.TokenRequest{}, change: at(time.Hour + leeway + time.Second), want: "service account token has expired"},
		{name: "extended token after its hour", request: expiring(boundTo("Secret", "s1"), 7200), change: at(2 * time.Hour), extra: map[string][]string{}},
		{name: "server's clock far behind", request: &authenticationv1.TokenRequest{}, change: at(-2 * leeway), want: "service account token is not valid yet"},
		{name: "account deleted", request: &authenticationv1.TokenRequest{}, change: func(t *testing.T, w *world) {
			remove(t, w.client.CoreV1().ServiceAccounts("app").Delete, "web")
		}, want: `serviceaccounts "web" not found`},
		{name: "account recreated", request: &authenticationv1.TokenRequest{}, change: func(t *testing.T, w *world) {
			replace(t, w, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web", UID: "new"}}, "serviceaccounts")
		}, want: "service account UID (new) does not match claim (web-uid)"},
		{name: "account terminating", request: &authenticationv1.TokenRequest{}, change: func(t *testing.T, w *world) {
			replace(t, w, &corev1.ServiceAccount{ObjectMeta: ending(meta("app", "web"), -leeway-time.Second)}, "serviceaccounts")
		}, want: "service account app/web has been deleted"},
		{name: "pod deleted", request: boundTo("Pod", "p1"), change: func(t *testing.T, w *world) {
			remove(t, w.client.CoreV1().Pods("app").Delete, "p1")
		}, want: "service account token has been invalidated"},
		{name: "pod recreated", request: boundTo("Pod", "p1"), change: func(t *testing.T, w *world) {
			replace(t, w, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p1", UID: "new"}}, "pods")
		}, want: "pod UID (new) does not match service account pod ref claim (p1-uid)"},
		{name: "pod within its grace period", request: boundTo("Pod", "unscheduled"), change: func(t *testing.T, w *world) {
			replace(t, w, &corev1.Pod{ObjectMeta: ending(meta("app", "unscheduled"), 30*time.Second)}, "pods")
		}, extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"unscheduled"}, "authentication.kubernetes.io/pod-uid": {"unscheduled-uid"}}},
		{name: "pod long past its grace period", request: boundTo("Pod", "p1"), change: func(t *testing.T, w *world) {
			replace(t, w, &corev1.Pod{ObjectMeta: ending(meta("app", "p1"), -2*leeway)}, "pods")
		}, want: "service account token has been invalidated"},
		{name: "secret deleted", request: boundTo("Secret", "s1"), change: func(t *testing.T, w *world) {
			remove(t, w.client.CoreV1().Secrets("app").Delete, "s1")
		}, want: "service account token has been invalidated"},
		{name: "node deleted", request: boundTo("Node", "n1"), change: func(t *testing.T, w *world) {
			remove(t, w.client.CoreV1().Nodes().Delete, "n1")
		}, want: "service account token has been invalidated"},
		{name: "node of a bound pod deleted", request: boundTo("Pod", "p1"), change: func(t *testing.T, w *world) {
			remove(t, w.client.CoreV1().Nodes().Delete, "n1")
		}, extra: map[string][]string{
			"authentication.kubernetes.io/pod-name": {"p1"}, "authentication.kubernetes.io/pod-uid": {"p1-uid"},
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"n1-uid"}}},
		{name: "pod missing in a stale cache", request: boundTo("Pod", "p1"), change: func(t *testing.T, w *world) {
			if err := w.informers.Core().V1().Pods().Informer().GetStore().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p1", UID: "old"}}); err != nil {
				t.Fatal(err)
			}
		}, extra: map[string][]string{
			"authentication.kubernetes.io/pod-name": {"p1"}, "authentication.kubernetes.io/pod-uid": {"p1-uid"},
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"n1-uid"}}},
		{name: "for another audience", request: audience("vault"), want: `token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc.cluster.local"]`},
		{name: "reviewed for its audience", request: audience("vault"), target: []string{"vault", "x"}, extra: map[string][]string{}},
		{name: "reviewed for another audience", request: &authenticationv1.TokenRequest{}, target: []string{"vault"}, want: "is invalid for the target audiences"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			token := w.request(t, tt.request)
			if tt.change != nil {
				tt.change(t, w)
			}
			ctx := context.Background()
			if tt.target != nil {
				ctx = authenticator.WithAudiences(ctx, tt.target)
			}
			response, ok, err := w.authenticator.AuthenticateToken(ctx, token)
			if tt.want != "" {
				if ok || err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("authenticated %v, error %v; want %q", ok, err, tt.want)
				}
				return
			}
			if !ok || err != nil {
				t.Fatalf("authenticated %v, error %v", ok, err)
			}
			got := response.User
			if id := got.GetExtra()[user.CredentialIDKey]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
				t.Errorf("credential ID %v", id)
			}
			delete(got.GetExtra(), user.CredentialIDKey)
			want := &user.DefaultInfo{Name: "system:serviceaccount:app:web", UID: "web-uid",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:app"}, Extra: tt.extra}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func at(d time.Duration) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.clock.SetTime(start.Add(d)) }
}

func audience(a string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{a}}}
}

func ending(m metav1.ObjectMeta, in time.Duration) metav1.ObjectMeta {
	m.DeletionTimestamp = ptr.To(metav1.NewTime(start.Add(in)))
	m.Finalizers = []string{"example.com/wait"}
	return m
}

func remove(t *testing.T, f func(context.Context, string, metav1.DeleteOptions) error, name string) {
	t.Helper()
	if err := f(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, w *world, obj runtime.Object, resource string) {
	t.Helper()
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource(resource), obj, "app"); err != nil {
		t.Fatal(err)
	}
}

func TestInvalidTokens(t *testing.T) {
	w := newWorld(t)
	good := w.request(t, &authenticationv1.TokenRequest{})
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	foreign := NewIssuer("https://elsewhere", w.keys, w.issuer.objects, nil, w.clock)
	elsewhere, err := foreign.Request(context.Background(), "app", "web", audience("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	thief := NewIssuer(DefaultIssuerURL, newKeys(t, newKey(t)), w.issuer.objects, w.issuer.audiences, w.clock)
	forged, err := thief.Request(context.Background(), "app", "web", &authenticationv1.TokenRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, token string
		isOwn       bool // refused with an error, and not left to another authenticator
	}{
		{"empty", "", false},
		{"opaque", "abcdef.0123456789abcdef", false},
		{"JSON", `{"payload":"x"}`, false},
		{"another issuer", elsewhere.Status.Token, false},
		{"another key", forged.Status.Token, true},
		{"valid key ID, another key", strings.Split(forged.Status.Token, ".")[0] + "." + parts[1] + "." + parts[2], true},
		{"changed payload", parts[0] + "." + encode([]byte(`{"iss":"`+DefaultIssuerURL+`","sub":"system:serviceaccount:app:root"}`)) + "." + parts[2], true},
		{"no signature", parts[0] + "." + parts[1] + ".", true},
		{"algorithm none", encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", true},
		{"algorithm HS256 with the public key", encode([]byte(`{"alg":"HS256","kid":"`+w.keys.all[0].id+`"}`)) + "." + parts[1] + "." + parts[2], true},
		{"header is not JSON", encode([]byte(`nope`)) + "." + parts[1] + "." + parts[2], false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response, ok, err := w.authenticator.AuthenticateToken(context.Background(), tt.token)
			if ok || response != nil {
				t.Fatal("authenticated")
			}
			if (err != nil) != tt.isOwn {
				t.Errorf("error %v; own token: %v", err, tt.isOwn)
			}
		})
	}
}

func TestKeyRotation(t *testing.T) {
	old, next := newKey(t), newKey(t)
	w := newWorld(t)
	before := NewIssuer(DefaultIssuerURL, newKeys(t, old), w.issuer.objects, w.issuer.audiences, w.clock)
	answer, err := before.Request(context.Background(), "app", "web", &authenticationv1.TokenRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		keys *Keys
		want bool
	}{
		{"old key kept", newKeys(t, next, &old.PublicKey), true},
		{"old key dropped", newKeys(t, next), false},
	} {
		a := NewAuthenticator(DefaultIssuerURL, tt.keys, w.issuer.objects, w.issuer.audiences, w.clock)
		if _, ok, err := a.AuthenticateToken(context.Background(), answer.Status.Token); ok != tt.want {
			t.Errorf("%s: authenticated %v, error %v", tt.name, ok, err)
		}
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewKeys(p384); err == nil {
		t.Error("a key that ES256 cannot use was accepted")
	}
}

// FuzzAuthenticate feeds random tokens to the authenticator: only signed ones may pass, and none
// may make it panic.
func FuzzAuthenticate(f *testing.F) {
	w := newWorld(f)
	good := w.request(f, boundTo("Pod", "p1"))
	parts := strings.Split(good, ".")
	for _, seed := range []string{good, good + ".", parts[0] + "." + parts[1] + ".", "..", "a.b.c", "",
		base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		_, ok, err := w.authenticator.AuthenticateToken(context.Background(), token)
		if ok && err != nil {
			t.Errorf("authenticated with an error: %v", err)
		}
		if ok && !strings.HasPrefix(token, parts[0]+"."+parts[1]+".") {
			t.Errorf("authenticated %q", token)
		}
	})
}
