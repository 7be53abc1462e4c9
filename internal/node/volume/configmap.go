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

func (m *Manager) configMap(pod *v1.Pod, source *v1.ConfigMapVolumeSource) collector {
	return func(ctx context.Context) (payload, time.Time, error) {
		content, err := m.configMapFiles(ctx, pod, source.Name, source.Items, source.DefaultMode, ptr.Deref(source.Optional, false))
		return content, time.Time{}, err
	}
}

// configMapFiles returns the files of a ConfigMap. If optional, the ConfigMap or its keys may be missing.
func (m *Manager) configMapFiles(ctx context.Context, pod *v1.Pod, name string, items []v1.KeyToPath, mode *int32, optional bool) (payload, error) {
	configMap, err := m.options.Objects.ConfigMap(ctx, pod, name)
	switch {
	case apierrors.IsNotFound(err) && optional:
		configMap = &v1.ConfigMap{}
	case err != nil:
		return nil, err
	}
	data := make(map[string][]byte, len(configMap.Data)+len(configMap.BinaryData))
	for key, value := range configMap.BinaryData {
		data[key] = value
	}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return project(data, items, mode, optional, func(key string) error {
		return fmt.Errorf("configmap references non-existent config key: %s", key)
	})
}
