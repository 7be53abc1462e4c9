// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestReserveLooksOnceASecond(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	free, looked := uint64(300<<20), 0
	var broken error
	r := &reserve{dir: "/data", bytes: 256 << 20, clock: clock, statfs: func(dir string) (uint64, error) {
		looked++
		if dir != "/data" {
			t.Errorf("checked %s", dir)
		}
		return free, broken
	}}
	ready := func() error { return r.readyCheck().Check(nil) }
	first, again := r.refuse(), r.refuse()
	if first != nil || again != nil || ready() != nil || looked != 1 {
		t.Fatalf("with room: refused %v, ready %v, looked %d times", r.refuse(), ready(), looked)
	}
	free = 12<<20 + 5
	clock.Step(999 * time.Millisecond)
	if r.refuse() != nil || looked != 1 {
		t.Errorf("checked again within a second")
	}
	clock.Step(time.Millisecond)
	err := r.refuse()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage || status.Status().Reason != reasonNoRoom {
		t.Fatalf("refused with %#v", err)
	}
	for _, want := range []string{"12MiB", "256MiB", "/data", "delete"} {
		if !strings.Contains(err.Error(), want) || !strings.Contains(ready().Error(), want) {
			t.Errorf("%q, %q: want %q in both", err, ready(), want)
		}
	}
	broken = errors.New("no such disk")
	clock.Step(time.Second)
	if r.refuse() != nil || !errors.Is(ready(), broken) {
		t.Errorf("a disk whose free space is unknown: refused %v, ready %v", r.refuse(), ready())
	}
	broken, free = nil, 256<<20
	clock.Step(time.Second)
	if r.refuse() != nil || ready() != nil {
		t.Errorf("with room again: refused %v, ready %v", r.refuse(), ready())
	}
}

func TestFreeBytes(t *testing.T) {
	if free, err := freeBytes(t.TempDir()); err != nil || free == 0 {
		t.Errorf("%d, %v", free, err)
	}
	if _, err := freeBytes("/no/such/dir"); err == nil || !strings.Contains(err.Error(), "/no/such/dir") {
		t.Errorf("%v", err)
	}
}

// fill makes the shared server take its disk for full until the test ends.
func fill(t *testing.T) {
	t.Helper()
	set := func(statfs func(string) (uint64, error)) {
		server.reserve.mu.Lock()
		defer server.reserve.mu.Unlock()
		server.reserve.statfs, server.reserve.checked = statfs, time.Time{}
	}
	set(func(string) (uint64, error) { return 0, nil })
	t.Cleanup(func() { set(freeBytes) })
}

// TestFullDisk: requests that need space are refused, and requests that free space are not.
func TestFullDisk(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	maps := client.CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"kept", "gone", "going"} {
		object := configMap(name, nil)
		if name == "going" {
			object.Finalizers = []string{"example.com/hold"}
		}
		if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	leases := client.CoordinationV1().Leases(namespace)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t)

	refused := func(what string, err error) {
		t.Helper()
		if apierrors.ReasonForError(err) != reasonNoRoom {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = maps.Create(t.Context(), configMap("new", nil), metav1.CreateOptions{})
	refused("create", err)
	_, err = maps.Update(t.Context(), configMap("kept", map[string]string{"a": "b"}), metav1.UpdateOptions{})
	refused("update", err)
	_, err = maps.Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	refused("patch", err)
	_, err = maps.Patch(t.Context(), "applied", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`), metav1.PatchOptions{FieldManager: "m"})
	refused("apply", err)
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	refused("a namespace", err)
	over := server.do(t, server.admin, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	if over.code != http.StatusInsufficientStorage || !strings.Contains(over.status(t).Message, "must stay free") {
		t.Errorf("over HTTPS: %d %s", over.code, over.body)
	}

	_, err = maps.Create(t.Context(), configMap("new", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	allowed("a dry run", err)
	allowed("delete", maps.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	allowed("delete what is held", maps.Delete(t.Context(), "going", metav1.DeleteOptions{}))
	_, err = maps.Patch(t.Context(), "going", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	allowed("let it go", err)
	if _, err := maps.Get(t.Context(), "going", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object still exists: %v", err)
	}
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	allowed("a lease", err)
	_, err = client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})
	allowed("a review", err)
	_, err = client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	allowed("a token", err)
	_, err = maps.List(t.Context(), metav1.ListOptions{})
	allowed("a list", err)
	allowed("delete all", maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	allowed("delete the namespace", client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	going, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	going.Spec.Finalizers = nil
	_, err = client.CoreV1().Namespaces().Finalize(t.Context(), going, metav1.UpdateOptions{})
	allowed("finalize the namespace", err)

	if got := server.do(t, server.admin, http.MethodGet, "/readyz", ""); got.code != http.StatusInternalServerError || !strings.Contains(got.body, "[-]disk-reserve failed") {
		t.Errorf("/readyz: %d %s", got.code, got.body)
	}
	if got := server.do(t, server.admin, http.MethodGet, "/readyz/disk-reserve", ""); !strings.Contains(got.body, "must stay free") {
		t.Errorf("/readyz/disk-reserve: %d %s", got.code, got.body)
	}
	if got := server.do(t, server.admin, http.MethodGet, "/livez", ""); got.code != http.StatusOK {
		t.Errorf("/livez: %d %s", got.code, got.body)
	}
}

const widgets = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
	"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","shortNames":["wd"]},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
