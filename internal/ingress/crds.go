// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/crds"
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
func embeddedCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packedCRDs))
	if err != nil {
		return nil, err
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for decoder := yaml.NewYAMLOrJSONDecoder(unpacked, 4096); ; {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if crd.Name != "" {
			crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
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
	for _, crd := range all {
		crd.Labels = managed
		present, err := crds.Create(ctx, g.options.Definitions, crd)
		if err != nil {
			return err
		}
		if has, want := present.Annotations[bundleVersion], crd.Annotations[bundleVersion]; has != want {
			klog.InfoS("A CRD of the Gateway API is of another version, and left as it is", "crd", crd.Name, "version", has, "expected", want)
		}
	}
	return nil
}
