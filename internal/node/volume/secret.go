// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

func (m *Manager) secret(pod *v1.Pod, source *v1.SecretVolumeSource) collector {
	return func(ctx context.Context) (payload, time.Time, error) {
		content, err := m.secretFiles(ctx, pod, source.SecretName, source.Items, source.DefaultMode, ptr.Deref(source.Optional, false))
		return content, time.Time{}, err
	}
}

// secretFiles returns the files of a Secret. If optional, the Secret or its keys may be missing.
func (m *Manager) secretFiles(ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, mode *int32, optional bool) (payload, error) {
	secret, err := m.options.Objects.Secret(ctx, pod, name)
	switch {
	case apierrors.IsNotFound(err) && optional:
		secret = &v1.Secret{}
	case err != nil:
		return nil, err
	}
	return project(secret.Data, items, mode, optional, func(key string) error {
		return fmt.Errorf("references non-existent secret key: %s", key)
	})
}
