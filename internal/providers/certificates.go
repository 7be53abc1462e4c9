// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certManager = "cert-manager.io"
	// injectFrom is the annotation of an object whose webhooks trust a Certificate, which it names as namespace/name.
	injectFrom = certManager + "/inject-ca-from"
	// validity is the lifetime of a certificate. It is renewed when a third is left.
	validity = 365 * 24 * time.Hour
)

// Certify returns objects without those of cert-manager: instead of each Certificate its Secret, which webhooks trust that name the
// Certificate. existing returns the Secret that the cluster has, or nil; it is kept until it has to be renewed.
func Certify(objects []*unstructured.Unstructured, now time.Time, existing func(namespace, name string) (*unstructured.Unstructured, error)) ([]*unstructured.Unstructured, error) {
	var kept []*unstructured.Unstructured
	authorities := map[string]string{}
	for _, o := range objects {
		if o.GroupVersionKind().Group != certManager {
			kept = append(kept, o.DeepCopy())
			continue
		}
		if o.GetKind() != "Certificate" {
			continue
		}
		secret, err := secretFor(o, now, existing)
		if err != nil {
			return nil, fmt.Errorf("the Certificate %s: %w", o.GetName(), err)
		}
		authorities[o.GetNamespace()+"/"+o.GetName()], _, _ = unstructured.NestedString(secret.Object, "data", "tls.crt")
		kept = append(kept, secret)
	}
	for _, o := range kept {
		name, named := o.GetAnnotations()[injectFrom]
		if !named {
			continue
		}
		authority, issued := authorities[name]
		if !issued {
			return nil, fmt.Errorf("%s %s names the Certificate %s, which the manifest does not have", o.GetKind(), o.GetName(), name)
		}
		trust(o, authority)
	}
	return kept, nil
}

// secretFor returns the Secret that a Certificate of a self-signed issuer asks for.
func secretFor(request *unstructured.Unstructured, now time.Time, existing func(namespace, name string) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	names, _, err := unstructured.NestedStringSlice(request.Object, "spec", "dnsNames")
	if err != nil {
		return nil, err
	}
	name, _, err := unstructured.NestedString(request.Object, "spec", "secretName")
	if err != nil || len(names) == 0 || name == "" {
		return nil, errors.Join(err, errors.New("it names no Secret or no host"))
	}
	found, err := existing(request.GetNamespace(), name)
	if err != nil {
		return nil, err
	}
	data := usable(found, names, now)
	if data == nil {
		if data, err = selfSigned(names, now); err != nil {
			return nil, err
		}
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}}
	secret.SetName(name)
	secret.SetNamespace(request.GetNamespace())
	secret.SetLabels(request.GetLabels())
	return secret, nil
}

// usable returns the data of a Secret whose certificate is for names and has more than a third of its lifetime left, or nil.
func usable(secret *unstructured.Unstructured, names []string, now time.Time) map[string]any {
	if secret == nil {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	encoded, err := base64.StdEncoding.DecodeString(data["tls.crt"])
	if err != nil {
		return nil
	}
	certificates, err := cert.ParseCertsPEM(encoded)
	if err != nil || !slices.Equal(certificates[0].DNSNames, names) {
		return nil
	}
	lifetime := certificates[0].NotAfter.Sub(certificates[0].NotBefore)
	if now.Before(certificates[0].NotBefore) || certificates[0].NotAfter.Sub(now) < lifetime/3 {
		return nil
	}
	return secretData(data["tls.crt"], data["tls.key"])
}

// secretData returns the data of a Secret as cert-manager writes it: the certificate is its own authority.
func secretData(certificate, key string) map[string]any {
	return map[string]any{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}
}

// selfSigned returns a new certificate, which clients trust by itself, and its key.
func selfSigned(names []string, now time.Time) (map[string]any, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		// Clocks of clients may be slightly behind.
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	encodedCertificate, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return nil, err
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return secretData(base64.StdEncoding.EncodeToString(encodedCertificate), base64.StdEncoding.EncodeToString(encodedKey)), nil
}

// trust sets the authority that clients of an object's webhooks trust.
func trust(o *unstructured.Unstructured, authority string) {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		if _, found, _ := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook", "clientConfig"); found {
			_ = unstructured.SetNestedField(o.Object, authority, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, w := range webhooks {
			_ = unstructured.SetNestedField(w.(map[string]any), authority, "clientConfig", "caBundle")
		}
		_ = unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
	}
}
