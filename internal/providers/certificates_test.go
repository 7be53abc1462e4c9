// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// webhooks is a manifest with a Certificate that a webhook and a definition trust.
const webhooks = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned, namespace: one}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving, namespace: one, labels: {a: b}}
spec: {dnsNames: [hook.one.svc, hook.one.svc.cluster.local], secretName: serving-secret, issuerRef: {kind: Issuer, name: selfsigned}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks, annotations: {cert-manager.io/inject-ca-from: one/serving}}
webhooks:
- {name: a.example.com, clientConfig: {service: {name: hook, namespace: one}}}
- {name: b.example.com, clientConfig: {service: {name: hook, namespace: one}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com, annotations: {cert-manager.io/inject-ca-from: one/serving}}
spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: hook, namespace: one}}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plain.example.com, annotations: {cert-manager.io/inject-ca-from: one/serving}}
spec: {conversion: {strategy: None}}
`

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// certify certifies a manifest, in a cluster with a Secret or none, and returns its objects by name.
func certify(t *testing.T, manifest string, now time.Time, have *unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := Decode(manifest)
	if err != nil {
		t.Fatal(err)
	}
	certified, err := Certify(objects, now, func(namespace, name string) (*unstructured.Unstructured, error) {
		if namespace != "one" || name != "serving-secret" {
			t.Errorf("the Secret %s/%s is read", namespace, name)
		}
		return have, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, o := range certified {
		byName[o.GetName()] = o
	}
	return byName
}

// TestCertify: the certificate that the Secret has is for the names of the webhooks, which trust it.
func TestCertify(t *testing.T) {
	objects := certify(t, webhooks, began, nil)
	if len(objects) != 4 || objects["selfsigned"] != nil || objects["serving"] != nil {
		t.Errorf("objects %v", objects)
	}
	secret := objects["serving-secret"]
	if secret.GetNamespace() != "one" || secret.GetLabels()["a"] != "b" {
		t.Errorf("Secret %v", secret)
	}
	bundle := field(t, secret, "data", "tls.crt")
	pair, err := tls.X509KeyPair(decode(t, bundle), decode(t, field(t, secret, "data", "tls.key")))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(decode(t, bundle))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "hook.one.svc", Roots: pool, CurrentTime: began}); err != nil {
		t.Error(err)
	}
	if field(t, objects["serving-secret"], "data", "ca.crt") != bundle {
		t.Error("the Secret has another authority than the webhooks")
	}
	hooks, _, _ := unstructured.NestedSlice(objects["hooks"].Object, "webhooks")
	for _, hook := range hooks {
		if trusted, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle"); trusted != bundle {
			t.Errorf("webhook %v does not trust the certificate", hook)
		}
	}
	if field(t, objects["things.example.com"], "spec", "conversion", "webhook", "clientConfig", "caBundle") != bundle {
		t.Error("the conversion does not trust the certificate")
	}
	if _, found, _ := unstructured.NestedMap(objects["plain.example.com"].Object, "spec", "conversion", "webhook"); found {
		t.Error("a definition without conversion has got one")
	}
}

// TestRenewal: a certificate is kept while it has a third of its lifetime, and is for the same names.
func TestRenewal(t *testing.T) {
	secret := certify(t, webhooks, began, nil)["serving-secret"]
	damaged := secret.DeepCopy()
	_ = unstructured.SetNestedField(damaged.Object, "bm9uZQ==", "data", "tls.crt")
	for _, test := range []struct {
		name     string
		manifest string
		have     *unstructured.Unstructured
		after    time.Duration
		kept     bool
	}{
		{"at once", webhooks, secret, 0, true},
		{"with more than a third left", webhooks, secret, validity/3*2 - 24*time.Hour, true},
		{"with less than a third left", webhooks, secret, validity / 3 * 2, false},
		{"expired", webhooks, secret, 2 * validity, false},
		{"with a clock that went back", webhooks, secret, -time.Hour, false},
		{"for other names", strings.ReplaceAll(webhooks, "hook.one.svc,", "other.one.svc,"), secret, 0, false},
		{"damaged", webhooks, damaged, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := certify(t, test.manifest, began.Add(test.after), test.have)["serving-secret"]
			if kept := field(t, now, "data", "tls.crt") == field(t, test.have, "data", "tls.crt"); kept != test.kept {
				t.Errorf("kept: %v, want %v", kept, test.kept)
			}
		})
	}
}

// TestCertifyRefuses: a manifest that asks for what cannot be had is an error.
func TestCertifyRefuses(t *testing.T) {
	for name, test := range map[string]struct{ replace, by, want string }{
		"an unknown Certificate": {"one/serving}", "one/other}", "names the Certificate one/other"},
		"no names":               {"dnsNames: [hook.one.svc, hook.one.svc.cluster.local], ", "", "names no Secret or no host"},
		"no Secret":              {"secretName: serving-secret, ", "", "names no Secret or no host"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Decode(strings.ReplaceAll(webhooks, test.replace, test.by))
			if err != nil {
				t.Fatal(err)
			}
			none := func(namespace, name string) (*unstructured.Unstructured, error) { return nil, nil }
			if _, err := Certify(objects, began, none); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func field(t *testing.T, o *unstructured.Unstructured, path ...string) string {
	t.Helper()
	value, found, err := unstructured.NestedString(o.Object, path...)
	if err != nil || !found {
		t.Fatalf("%s has no %v: %v", o.GetName(), path, err)
	}
	return value
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}
