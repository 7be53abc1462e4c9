// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kindred-project/kindred/internal/node/downward"
)

func (m *Manager) downwardAPI(pod *v1.Pod, source *v1.DownwardAPIVolumeSource) collector {
	return func(context.Context) (payload, time.Time, error) {
		content, err := m.downwardFiles(pod, source.Items, source.DefaultMode)
		return content, time.Time{}, err
	}
}

// downwardFiles returns the files of downward API items.
func (m *Manager) downwardFiles(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, mode *int32) (payload, error) {
	out := payload{}
	var errs []error
	for i := range items {
		item := &items[i]
		value, err := m.downwardValue(pod, item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[item.Path] = file{data: []byte(value), mode: modeOf(item.Mode, mode)}
	}
	return out, utilerrors.NewAggregate(errs)
}

func (m *Manager) downwardValue(pod *v1.Pod, item *v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		return downward.Field(pod, item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		return downward.Resource(pod, nil, item.ResourceFieldRef, m.options.Allocatable())
	}
	return "", nil
}
