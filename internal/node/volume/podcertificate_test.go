// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// signer answers certificate requests.
type signer struct {
	mu       sync.Mutex
	requests map[string]*certificatesv1.PodCertificateRequest
	created  int
	answer   func(n int, request *certificatesv1.PodCertificateRequest) // called when created; nil: no answer
	events   *watch.RaceFreeFakeWatcher
	unseen   bool // the node authorizer has not seen the requests
}

func newSigner(t *testing.T, f *fixture) *signer {
	t.Helper()
	s := &signer{requests: map[string]*certificatesv1.PodCertificateRequest{}, events: watch.NewRaceFreeFake()}
	f.client.PrependReactor("create", "podcertificaterequests", s.create)
	f.client.PrependReactor("get", "podcertificaterequests", s.get)
	f.client.PrependWatchReactor("podcertificaterequests", s.watch)
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "sa-uid"}}
	if err := f.client.Tracker().Add(account); err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid"}}
	if err := f.client.Tracker().Add(node); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signer) create(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest).DeepCopy()
	s.created++
	request.Name, request.ResourceVersion = fmt.Sprintf("req-%d", s.created), "1"
	if s.answer != nil {
		s.answer(s.created, request)
	}
	s.requests[request.Name] = request
	return true, request.DeepCopy(), nil
}

func (s *signer) get(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := action.(clienttesting.GetAction).GetName()
	if s.unseen {
		return true, nil, apierrors.NewForbidden(certificatesv1.Resource("podcertificaterequests"), name, errors.New("no relationship found"))
	}
	request, ok := s.requests[name]
	if !ok {
		return true, nil, apierrors.NewNotFound(certificatesv1.Resource("podcertificaterequests"), name)
	}
	return true, request.DeepCopy(), nil
}

// watch allows what the node authorizer allows: a selector must limit the watch to the node.
func (s *signer) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	selector := action.(clienttesting.WatchAction).GetWatchRestrictions().Fields
	node, _ := selector.RequiresExactMatch("spec.nodeName")
	name, _ := selector.RequiresExactMatch("metadata.name")
	if node != "n" || name == "" {
		return true, nil, apierrors.NewForbidden(certificatesv1.Resource("podcertificaterequests"), name, errors.New("can only list/watch podcertificaterequests with nodeName field selector"))
	}
	return true, s.events, nil
}

func (f *fixture) issued(n int, request *certificatesv1.PodCertificateRequest) {
	request.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued}}
	request.Status.CertificateChain = fmt.Sprintf("note\n-----BEGIN CERTIFICATE-----\nHeader: x\n\nAAA%d\n-----END CERTIFICATE-----\n", n)
	request.Status.BeginRefreshAt = new(metav1.NewTime(f.clock.Now().Add(time.Hour)))
}

func certificatePod() *v1.Pod {
	pod := podWith(volumeOf("v", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{
		PodCertificate: &v1.PodCertificateProjection{
			SignerName: "example.com/signer", KeyType: "ED25519", MaxExpirationSeconds: new(int32(7200)),
			UserAnnotations:      map[string]string{"example.com/a": "b"},
			CredentialBundlePath: "bundle", KeyPath: "key", CertificateChainPath: "chain",
		}}}}}))
	pod.Spec.NodeName = "n"
	return pod
}

func TestPodCertificate(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	s := newSigner(t, f)
	s.answer = f.issued
	pod := certificatePod()
	f.prepared(t, pod)

	got := shown(t, f.at(t, pod, "v"))
	if want := "-----BEGIN CERTIFICATE-----\nAAA1\n-----END CERTIFICATE-----\n"; got["chain"] != want {
		t.Errorf("chain %q", got["chain"])
	}
	if got["bundle"] != got["key"]+got["chain"] {
		t.Errorf("bundle %q", got["bundle"])
	}
	request := s.requests["req-1"]
	proof, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil {
		t.Fatal(err)
	}
	if err := proof.CheckSignature(); err != nil {
		t.Error(err)
	}
	block, _ := pem.Decode([]byte(got["key"]))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.(crypto.Signer).Public())
	if err != nil || !bytes.Equal(public, proof.RawSubjectPublicKeyInfo) {
		t.Error("the request is for another key")
	}
	request.Spec.StubPKCS10Request = nil
	spec := fmt.Sprint(request.Spec.SignerName, request.Spec.PodName, request.Spec.PodUID, request.Spec.ServiceAccountName,
		request.Spec.ServiceAccountUID, request.Spec.NodeName, request.Spec.NodeUID, *request.Spec.MaxExpirationSeconds, request.Spec.UnverifiedUserAnnotations)
	if want := "example.com/signerpuidsasa-uidnn-uid7200map[example.com/a:b]"; strings.ReplaceAll(spec, " ", "") != want {
		t.Errorf("request %s", spec)
	}

	// The certificate is renewed after BeginRefreshAt.
	f.clock.Step(time.Hour - time.Second)
	f.prepared(t, pod)
	if s.created != 1 {
		t.Errorf("%d requests before the renewal", s.created)
	}
	f.clock.Step(refreshJitter + time.Second)
	f.prepared(t, pod)
	if got := shown(t, f.at(t, pod, "v")); !strings.Contains(got["chain"], "AAA2") || got["bundle"] != got["key"]+got["chain"] {
		t.Errorf("after renewal: %v", got)
	}
}

func TestFirstPodCertificateBlocks(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	s := newSigner(t, f)
	s.unseen = true
	pod := certificatePod()
	done := make(chan error)
	go func() { done <- f.Prepare(context.Background(), pod) }()
	eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.created == 1 })
	answered := s.requests["req-1"].DeepCopy()
	f.issued(1, answered)
	answered.ResourceVersion = "2"
	s.events.Modify(answered)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPodCertificateRenewalDoesNotBlock(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	s := newSigner(t, f)
	s.answer = f.issued
	pod := certificatePod()
	f.prepared(t, pod)
	s.answer = nil // the signer no longer answers
	f.clock.Step(2 * time.Hour)
	stop := running(t, f.Manager)
	defer stop()
	eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.created == 2 })
	path := filepath.Join(f.at(t, pod, "v"), "chain")
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "AAA1") {
		t.Errorf("the old certificate was removed: %s, %v", data, err)
	}
	s.mu.Lock()
	f.issued(2, s.requests["req-2"])
	s.mu.Unlock()
	eventually(t, func() bool {
		f.clock.Step(refreshCheck)
		data, _ := os.ReadFile(path)
		return strings.Contains(string(data), "AAA2")
	})
}

func TestPodCertificateRefused(t *testing.T) {
	for kind, want := range map[string]string{
		certificatesv1.PodCertificateRequestConditionTypeDenied: `MountVolume.SetUp failed for volume "v" : PodCertificateRequest was permanently denied: reason="R" message="M"`,
		certificatesv1.PodCertificateRequestConditionTypeFailed: `MountVolume.SetUp failed for volume "v" : PodCertificateRequest was permanently failed: reason="R" message="M"`,
	} {
		f := newFixture(t)
		s := newSigner(t, f)
		s.answer = func(_ int, request *certificatesv1.PodCertificateRequest) {
			request.Status.Conditions = []metav1.Condition{{Type: kind, Reason: "R", Message: "M"}}
		}
		for range 2 {
			if err := f.Prepare(context.Background(), certificatePod()); err == nil || err.Error() != want {
				t.Errorf("got %v", err)
			}
		}
		if s.created != 1 {
			t.Errorf("%d requests", s.created)
		}
	}
}

func TestPodCertificateRequestDeleted(t *testing.T) {
	asRoot(t)
	f := newFixture(t)
	s := newSigner(t, f)
	pod := certificatePod()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- f.Prepare(ctx, pod) }()
	eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.created == 1 })
	cancel()
	if err := <-done; err == nil {
		t.Fatal("no error without a certificate")
	}
	s.mu.Lock()
	delete(s.requests, "req-1")
	s.answer = f.issued
	s.mu.Unlock()
	if err := f.Prepare(context.Background(), pod); err == nil {
		t.Fatal("no error after the request was deleted")
	}
	f.prepared(t, pod)
}

func TestKeyTypes(t *testing.T) {
	for _, keyType := range []string{"RSA3072", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		_, proof, err := newKey(keyType)
		if err != nil {
			t.Errorf("%s: %v", keyType, err)
			continue
		}
		if _, err := x509.ParseCertificateRequest(proof); err != nil {
			t.Errorf("%s: %v", keyType, err)
		}
	}
	if _, _, err := newKey("DSA"); err == nil {
		t.Error("generated a key of an unknown type")
	}
}
