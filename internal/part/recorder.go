// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package part

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// Recorder returns a recorder that creates events as the user of config, until ctx is done. component is the source of
// the events.
func Recorder(ctx context.Context, config *rest.Config, component string) (record.EventRecorder, error) {
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}), nil
}
