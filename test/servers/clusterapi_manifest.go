// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
)

const certManager = "cert-manager.io"

// Manifest returns the objects of a provider, from what kubectl kustomize prints for its Config: with variables set, the image built
// from Program, the labels that clusterctl sets, and a certificate instead of a request to cert-manager, which no module provides.
func (p Provider) Manifest(kustomized string, variables map[string]string) (objects []*unstructured.Unstructured, err error) {
	all, err := decode(Substitute(kustomized, variables))
	if err != nil {
		return nil, err
	}
	var secret *unstructured.Unstructured
	for _, o := range all {
		if o.GroupVersionKind().Group == certManager {
			if o.GetKind() != "Certificate" {
				continue
			}
			if secret, err = certificateFor(o); err != nil {
				return nil, err
			}
			o = secret
		}
		o.SetLabels(withLabel(o.GetLabels(), "clusterctl.cluster.x-k8s.io", ""))
		objects = append(objects, o)
	}
	if secret == nil {
		return nil, errors.New("the manifest has no certificate for webhooks")
	}
	authority, _, _ := unstructured.NestedString(secret.Object, "data", "tls.crt")
	for _, o := range objects {
		trust(o, authority)
		p.useImage(o)
	}
	return objects, nil
}

// variable is a variable of clusterctl, with or without a default.
var variable = regexp.MustCompile(`\$\{(\w+)(?::?=([^}]*))?\}`)

// Substitute replaces the variables of a template by their values, or their defaults.
func Substitute(template string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(template, func(found string) string {
		parts := variable.FindStringSubmatch(found)
		if value, given := values[parts[1]]; given {
			return value
		}
		return parts[2]
	})
}

func decode(manifest string) (objects []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 1<<20)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); err == io.EOF {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// certificateFor returns the Secret that a Certificate of cert-manager asks for.
func certificateFor(request *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	names, _, err := unstructured.NestedStringSlice(request.Object, "spec", "dnsNames")
	if err != nil {
		return nil, err
	}
	name, _, err := unstructured.NestedString(request.Object, "spec", "secretName")
	if err != nil || len(names) == 0 || name == "" {
		return nil, errors.Join(err, errors.New("the Certificate names no Secret or no host"))
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(names[0], nil, names)
	if err != nil {
		return nil, err
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata": map[string]any{"name": name, "namespace": request.GetNamespace()},
		"data": map[string]any{
			"tls.crt": base64.StdEncoding.EncodeToString(certificate),
			"tls.key": base64.StdEncoding.EncodeToString(key),
		},
	}}
	secret.SetLabels(request.GetLabels())
	return secret, nil
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

// useImage sets the image of a Deployment's manager. It has been loaded, and no registry has it.
func (p Provider) useImage(o *unstructured.Unstructured) {
	if o.GetKind() != "Deployment" {
		return
	}
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, _ := unstructured.NestedSlice(o.Object, path...)
	i := slices.IndexFunc(containers, func(c any) bool { return c.(map[string]any)["name"] == "manager" })
	if i < 0 {
		return
	}
	manager := containers[i].(map[string]any)
	manager["image"], manager["imagePullPolicy"] = p.Image, "Never"
	_ = unstructured.SetNestedSlice(o.Object, containers, path...)
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	return labels
}
