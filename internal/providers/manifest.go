// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/drone/envsubst/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Substitute replaces the variables of a manifest as clusterctl does: ${NAME} by what lookup returns, and ${NAME:=default} by the default
// if that is "".
func Substitute(manifest string, lookup func(string) string) (string, error) {
	return envsubst.Eval(manifest, lookup)
}

// Decode returns the objects of a manifest.
func Decode(manifest string) (objects []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 1<<20)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) == 0 {
			continue
		}
		if o.GetKind() == "" || o.GetName() == "" {
			return nil, fmt.Errorf("document %d has no kind or no name", len(objects)+1)
		}
		objects = append(objects, o)
	}
}
