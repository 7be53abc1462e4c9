// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestPodSecurity: once a namespace has the label, its level is enforced for pods.
func TestPodSecurity(t *testing.T) {
	namespace := server.namespace(t)
	client := server.client(t).CoreV1()
	_, err := client.Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"lax"}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "pod-security.kubernetes.io/enforce") {
		t.Errorf("an unknown level: %v", err)
	}
	if _, err := client.Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{HostPID: true, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	const want = `pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`
	eventually(t, func() error {
		_, err := client.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || err.Error() != want {
			return fmt.Errorf("%v, want %q", err, want)
		}
		return nil
	})
}

// TestDefaultClasses: objects without a class get the default class.
func TestDefaultClasses(t *testing.T) {
	namespace := server.namespace(t)
	client := server.client(t)
	storage := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "default-class", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "example.com/p"}
	if _, err := client.StorageV1().StorageClasses().Create(t.Context(), storage, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.StorageV1().StorageClasses().Delete(context.Background(), storage.Name, metav1.DeleteOptions{})
	})
	ingress := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "default-class", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/c"}}
	if _, err := client.NetworkingV1().IngressClasses().Create(t.Context(), ingress, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	eventually(t, func() error {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
		got, err := client.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, dry)
		if err == nil && ptr.Deref(got.Spec.StorageClassName, "") != "default-class" {
			err = fmt.Errorf("claim of class %q", ptr.Deref(got.Spec.StorageClassName, ""))
		}
		return err
	})
	eventually(t, func() error {
		wanted := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}
		got, err := client.NetworkingV1().Ingresses(namespace).Create(t.Context(), wanted, dry)
		if err == nil && ptr.Deref(got.Spec.IngressClassName, "") != "default-class" {
			err = fmt.Errorf("ingress of class %q", ptr.Deref(got.Spec.IngressClassName, ""))
		}
		return err
	})
}

// TestSignersAreGuarded: permission to update a request's approval or status does not include
// permission to approve or sign for any signer.
func TestSignersAreGuarded(t *testing.T) {
	clerk := grant(t, "clerk", rbacv1.PolicyRule{Verbs: []string{"create", "get", "update"}, APIGroups: []string{"certificates.k8s.io"},
		Resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"}},
		rbacv1.PolicyRule{Verbs: []string{"approve"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"example.com/*"}},
	).CertificatesV1().CertificateSigningRequests()
	ask := func(name, signer string, groups ...string) (*certificatesv1.CertificateSigningRequest, error) {
		request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: signingRequest(t, groups...), SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}
		return clerk.Create(t.Context(), request, metav1.CreateOptions{})
	}
	if _, err := ask("masters", certificatesv1.KubeAPIServerClientSignerName, "system:masters"); !apierrors.IsForbidden(err) {
		t.Errorf("a certificate of system:masters: %v", err)
	}
	for signer, allowed := range map[string]bool{"example.com/ours": true, "example.org/theirs": false} {
		request, err := ask(strings.ReplaceAll(signer, "/", "-"), signer)
		if err != nil {
			t.Fatal(err)
		}
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		approved, err := clerk.UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{})
		if allowed != (err == nil) || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("approve for %s: %v", signer, err)
		}
		if !allowed {
			continue
		}
		approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "Test"})
		if _, err := clerk.UpdateStatus(t.Context(), approved, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("sign for %s: %v", signer, err)
		}
	}
}

func signingRequest(t *testing.T, groups ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody", Organization: groups}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
