// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// PatchTo returns the strategic merge patch that restores a template. Revisions hold this patch
// and are identified by it, so its encoding must not change.
func PatchTo(template *corev1.PodTemplateSpec) ([]byte, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// Template returns the template that a revision restores.
func Template(revision *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s/%s: %w", revision.Namespace, revision.Name, err)
	}
	return &patch.Spec.Template, nil
}
