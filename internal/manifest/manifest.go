// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the manifests of static pods, by the rules of the API: its decoding, defaults and validation,
// and what the admission plugin NodeRestriction lets nodes create.
package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/admission/noderestriction"
	"github.com/kindred-project/kindred/internal/registry/core"
)

// Pods returns the pods of a manifest, which is a Pod or a PodList in YAML or JSON. complete gives each pod what the node
// adds to it, before the pod is validated. A pod that refers to other objects of the API is refused: it must start without
// the API.
func Pods(text []byte, complete func(*v1.Pod) error) ([]*v1.Pod, error) {
	pods, err := core.DecodePods(text, complete)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		resource, err := noderestriction.APIReference(p)
		if err != nil {
			return nil, err
		}
		if resource != "" {
			return nil, fmt.Errorf("static pods may not reference %s", resource)
		}
	}
	return pods, nil
}
