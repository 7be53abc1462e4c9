// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informers is what the manager's cache can do for the controller.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	RemoveInformer(ctx context.Context, obj client.Object) error
}

// errUnserved: nobody serves the kind, or it has no namespaced objects to count.
var errUnserved = errors.New("not served")

// watches are those of the kinds that some quota counts.
type watches struct {
	cache  informers
	mapper meta.RESTMapper
	live   client.Reader
	clock  clock.PassiveClock
	wake   *wakeups

	mu   sync.Mutex
	open map[schema.GroupResource]*watch
}

type watch struct {
	begun  time.Time
	object client.Object
	list   func() client.ObjectList
	synced func() bool
}

// whole are the kinds of which quotas count more than the number.
func whole(resource schema.GroupResource) (client.Object, func() client.ObjectList) {
	switch resource {
	case corev1.Resource("pods"):
		return &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }
	case corev1.Resource("services"):
		return &corev1.Service{}, func() client.ObjectList { return &corev1.ServiceList{} }
	case corev1.Resource("persistentvolumeclaims"):
		return &corev1.PersistentVolumeClaim{}, func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }
	case resourcev1.Resource("resourceclaims"):
		return &resourcev1.ResourceClaim{}, func() client.ObjectList { return &resourcev1.ResourceClaimList{} }
	}
	return nil, nil
}

// watch begins to watch a kind, unless that was done before.
func (w *watches) watch(ctx context.Context, resource schema.GroupResource) (*watch, error) {
	w.mu.Lock()
	known := w.open[resource]
	w.mu.Unlock()
	if known != nil {
		return known, nil
	}
	begun, err := w.find(ctx, resource)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[resource] != nil {
		return w.open[resource], nil
	}
	informer, err := w.cache.GetInformer(ctx, begun.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(w.wake.handler(resource))
	if err != nil {
		return nil, err
	}
	begun.begun, begun.synced = w.clock.Now(), registration.HasSynced
	w.open[resource] = begun
	return begun, nil
}

// find says how to watch a kind. It asks the server for some of it: the mapper
// remembers kinds that are gone, and a watch for one of them would try for ever.
func (w *watches) find(ctx context.Context, resource schema.GroupResource) (*watch, error) {
	if object, list := whole(resource); object != nil {
		return &watch{object: object, list: list}, nil
	}
	kind, err := w.kind(resource)
	if err != nil {
		return nil, err
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	list := func() client.ObjectList {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return l
	}
	err = w.live.List(ctx, list(), client.Limit(1))
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil, errUnserved
	}
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", resource, err)
	}
	return &watch{object: object, list: list}, nil
}

// kind is that of a namespaced resource.
func (w *watches) kind(resource schema.GroupResource) (schema.GroupVersionKind, error) {
	kind, err := w.mapper.KindFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return kind, errUnserved
	}
	if err != nil {
		return kind, fmt.Errorf("look for %s: %w", resource, err)
	}
	mapping, err := w.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return kind, fmt.Errorf("look for %s: %w", resource, err)
	}
	// The mapper takes a singular for its plural; a quota does not.
	if mapping.Resource.GroupResource() != resource || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return kind, errUnserved
	}
	return kind, nil
}

// end stops watching a kind whose CRD is gone: its informer would be refused for ever.
func (w *watches) end(ctx context.Context, resource schema.GroupResource) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.open[resource]
	if known == nil {
		return nil
	}
	delete(w.open, resource)
	return w.cache.RemoveInformer(ctx, known.object)
}

// list reads what is there of a watched kind in a namespace.
func (w *watches) list(ctx context.Context, reader client.Reader, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	w.mu.Lock()
	known := w.open[resource]
	w.mu.Unlock()
	if known == nil {
		return nil, fmt.Errorf("count %s: %w", resource, errUnserved)
	}
	list := known.list()
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// handler wakes the quotas that count a kind in the namespace of what has happened.
func (w *wakeups) handler(resource schema.GroupResource) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initially bool) {
			// What is there when the watch begins is counted then.
			if o, ok := obj.(client.Object); ok && !initially {
				w.created(resource, o.GetNamespace())
			}
		},
		UpdateFunc: func(old, now any) {
			before, was := old.(client.Object)
			if o, ok := now.(client.Object); ok && was {
				w.changed(resource, o, before)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(client.Object); ok {
				w.deleted(resource, o.GetNamespace())
			}
		},
	}
}
