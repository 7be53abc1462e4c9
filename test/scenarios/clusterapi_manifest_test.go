// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kindred-project/kindred/internal/providers"
	"github.com/kindred-project/kindred/test/servers"
)

// manifest returns the objects of a provider, from what kubectl kustomize prints for its Config: with variables set, the image built
// from its program, the labels that clusterctl sets, and a certificate instead of a request to cert-manager.
func manifest(p servers.Provider, kustomized string, variables map[string]string) ([]*unstructured.Unstructured, error) {
	substituted, err := providers.Substitute(kustomized, func(name string) string { return variables[name] })
	if err != nil {
		return nil, err
	}
	decoded, err := providers.Decode(substituted)
	if err != nil {
		return nil, err
	}
	none := func(namespace, name string) (*unstructured.Unstructured, error) { return nil, nil }
	objects, err := providers.Certify(decoded, time.Now(), none)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["clusterctl.cluster.x-k8s.io"] = ""
		o.SetLabels(labels)
		useImage(o, p.Image)
	}
	return objects, nil
}

// useImage sets the image of a Deployment's manager. It has been loaded, and no registry has it.
func useImage(o *unstructured.Unstructured, image string) {
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
	manager["image"], manager["imagePullPolicy"] = image, "Never"
	_ = unstructured.SetNestedSlice(o.Object, containers, path...)
}
