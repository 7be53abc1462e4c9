// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package part

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	return recorder(sync.OnceValue(func() record.EventRecorder {
		broadcaster := record.NewBroadcaster(record.WithContext(ctx))
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.Events("")})
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	})), nil
}

// recorder makes a recorder for the first event. A broadcaster has two queues of a thousand events, and four goroutines, and most of
// the cluster's parts have nothing to tell.
type recorder func() record.EventRecorder

func (r recorder) Event(object runtime.Object, eventtype, reason, message string) {
	r().Event(object, eventtype, reason, message)
}

func (r recorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	r().Eventf(object, eventtype, reason, messageFmt, args...)
}

func (r recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any) {
	r().AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
}
