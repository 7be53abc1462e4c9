// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
)

//go:generate ./generate.sh

// packedCRDs are the CRDs of the Gateway API that are served, of its standard channel.
//
//go:embed gatewayapi.yaml.gz
var packedCRDs []byte

// bundleVersion is the annotation of a CRD that has the version of the Gateway API.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// embeddedCRDs returns the CRDs in this program.
func embeddedCRDs() ([]*unstructured.Unstructured, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packedCRDs))
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(unpacked, 4096); ; {
		crd := &unstructured.Unstructured{}
		if err := decoder.Decode(&crd.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(crd.Object) > 0 {
			unstructured.RemoveNestedField(crd.Object, "status")
			all = append(all, crd)
		}
	}
}

// installCRDs creates the CRDs that do not exist. Those that exist belong to the user, also if they are of another
// version.
func (g *gateways) installCRDs(ctx context.Context) error {
	all, err := embeddedCRDs()
	if err != nil {
		return err
	}
	client := g.dynamic.Resource(crdResource)
	for _, crd := range all {
		crd.SetLabels(managed)
		_, err := client.Create(ctx, crd, metav1.CreateOptions{})
		if err == nil {
			continue
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the CRD %s: %w", crd.GetName(), err)
		}
		present, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the CRD %s: %w", crd.GetName(), err)
		}
		if has, want := present.GetAnnotations()[bundleVersion], crd.GetAnnotations()[bundleVersion]; has != want {
			klog.InfoS("A CRD of the Gateway API is of another version, and left as it is", "crd", crd.GetName(), "version", has, "expected", want)
		}
	}
	return nil
}
