// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is a volume whose content is an OCI image (KEP-4639). The pod's worker makes the image present
// and the runtime mounts it: there is nothing to prepare.
type image struct{}

func (image) path() string                               { return "" }
func (image) readOnly() bool                             { return true }
func (image) prepare(context.Context) (time.Time, error) { return time.Time{}, nil }

// imageSpec returns the image with the pod's reference, or nil if the volume is of another kind.
func (m *Manager) imageSpec(pod *v1.Pod, source *v1.ImageVolumeSource) *runtimeapi.ImageSpec {
	if source == nil {
		return nil
	}
	return &runtimeapi.ImageSpec{Image: source.Reference, UserSpecifiedImage: source.Reference, Annotations: pod.Annotations}
}
