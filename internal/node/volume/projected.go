// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"maps"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
)

// projected collects several sources in one directory. If two have a file at one path, the later one
// wins.
func (m *Manager) projected(pod *v1.Pod, name string, source *v1.ProjectedVolumeSource) collector {
	return func(ctx context.Context) (payload, time.Time, error) {
		all := payload{}
		var again time.Time
		var errs []error
		for i := range source.Sources {
			content, due, err := m.projection(ctx, pod, certificateKey{volume: name, source: i}, &source.Sources[i], source.DefaultMode)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			again = earliest(again, due)
			maps.Copy(all, content)
		}
		return all, again, utilerrors.NewAggregate(errs)
	}
}

func (m *Manager) projection(ctx context.Context, pod *v1.Pod, key certificateKey, source *v1.VolumeProjection, mode *int32) (content payload, again time.Time, err error) {
	switch {
	case source.ConfigMap != nil:
		s := source.ConfigMap
		content, err = m.configMapFiles(ctx, pod, s.Name, s.Items, mode, ptr.Deref(s.Optional, false))
	case source.Secret != nil:
		s := source.Secret
		content, err = m.secretFiles(ctx, pod, s.Name, s.Items, mode, ptr.Deref(s.Optional, false))
	case source.DownwardAPI != nil:
		content, err = m.downwardFiles(pod, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		return m.tokenFile(ctx, pod, source.ServiceAccountToken, mode)
	case source.ClusterTrustBundle != nil:
		return m.trustFile(ctx, pod, source.ClusterTrustBundle, mode)
	case source.PodCertificate != nil:
		return m.certificateFiles(ctx, pod, key, source.PodCertificate, mode)
	}
	return content, again, err
}

// credential returns a file that only the user of the pod's containers may read, if they all run as the
// same user.
func credential(pod *v1.Pod, path string, data []byte, mode *int32) payload {
	owner := fsUser(pod)
	f := file{data: data, mode: modeOf(nil, mode), owner: owner}
	if owner != nil || fsGroup(pod) != nil {
		f.mode = os.FileMode(0o600)
	}
	return payload{path: f}
}

// earliest returns the earlier of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
