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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/served"
)

// informers is the part of the manager's cache that the controller uses.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	RemoveInformer(ctx context.Context, obj client.Object) error
}

// errUnserved is returned for a kind that is not served, or cannot be counted.
var errUnserved = errors.New("not served")

// verbs holds the verbs that a kind must support to be counted.
var verbs = []string{"create", "list", "watch", "delete"}

// watches holds the watches of the kinds that quotas count.
type watches struct {
	cache  informers
	served discovery.DiscoveryInterface
	clock  clock.PassiveClock
	wake   *wakeups

	// mu is also held while watched objects are read: a read of a kind that is not watched
	// any more would start a new watch, and may wait forever.
	mu   sync.RWMutex
	open map[schema.GroupResource]*watch
}

type watch struct {
	// started is when the watch was started, discovered when discovery was last checked.
	started, discovered time.Time
	object              client.Object
	list                func() client.ObjectList
	synced              func() bool
}

// kind returns the kind of a metadata watch. It is empty for a watch of whole objects.
func (w *watch) kind() schema.GroupVersionKind {
	return w.object.GetObjectKind().GroupVersionKind()
}

// fullTypes returns the types of a kind whose objects are read whole: quotas count more of them
// than their number.
func fullTypes(resource schema.GroupResource) (client.Object, func() client.ObjectList) {
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

// watch starts to watch a kind, unless it is watched. If the watched version was removed, it switches
// to another one.
func (w *watches) watch(ctx context.Context, resource schema.GroupResource) (*watch, error) {
	known := w.known(resource)
	if known != nil && !w.isDue(resource, known) {
		return known, nil
	}
	discovered := w.clock.Now()
	found, err := w.find(resource)
	switch {
	case err == nil:
		return w.follow(ctx, resource, found, discovered)
	case errors.Is(err, errUnserved):
		return nil, errors.Join(err, w.end(ctx, resource))
	case known != nil: // Discovery failed and is retried; the watch continues.
		return known, nil
	default:
		return nil, err
	}
}

// follow watches a kind as discovery found it, and ends a different watch of the kind.
func (w *watches) follow(ctx context.Context, resource schema.GroupResource, found *watch, discovered time.Time) (*watch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.open[resource]; known != nil && known.kind() == found.kind() {
		known.discovered = discovered
		return known, nil
	}
	if err := w.close(ctx, resource); err != nil {
		return nil, err
	}
	found.started, found.discovered = w.clock.Now(), discovered
	return found, w.begin(ctx, resource, found)
}

func (w *watches) known(resource schema.GroupResource) *watch {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.open[resource]
}

// isDue reports whether to check discovery again for a watched kind: periodically, and until a
// change of its CRD is certainly served.
func (w *watches) isDue(resource schema.GroupResource, known *watch) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	age := w.clock.Since(known.discovered)
	return age >= resync || age >= countDelay && known.discovered.Before(w.wake.servedBy(resource))
}

// isUnsettled reports whether a change of the kind's CRD may not be served yet.
func (w *watches) isUnsettled(resource schema.GroupResource) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	known := w.open[resource]
	return known != nil && known.discovered.Before(w.wake.servedBy(resource))
}

func (w *watches) begin(ctx context.Context, resource schema.GroupResource, started *watch) error {
	informer, err := w.cache.GetInformer(ctx, started.object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(w.wake.handler(resource))
	if err != nil {
		return err
	}
	started.synced = registration.HasSynced
	w.open[resource] = started
	return nil
}

// find returns how to watch a kind.
func (w *watches) find(resource schema.GroupResource) (*watch, error) {
	if object, list := fullTypes(resource); object != nil {
		return &watch{object: object, list: list}, nil
	}
	found, err := served.LookUp(w.served, resource)
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", resource, err)
	}
	if found == nil || !found.Namespaced || !found.Can(verbs...) {
		return nil, errUnserved
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(found.Kind)
	list := func() client.ObjectList {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(found.Kind.GroupVersion().WithKind(found.Kind.Kind + "List"))
		return l
	}
	return &watch{object: object, list: list}, nil
}

// end stops watching a kind whose CRD was deleted. Its informer would fail forever.
func (w *watches) end(ctx context.Context, resource schema.GroupResource) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close(ctx, resource)
}

func (w *watches) close(ctx context.Context, resource schema.GroupResource) error {
	known := w.open[resource]
	if known == nil {
		return nil
	}
	delete(w.open, resource)
	return w.cache.RemoveInformer(ctx, known.object)
}

// list returns the objects of a watched kind in a namespace.
func (w *watches) list(ctx context.Context, reader client.Reader, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	known := w.open[resource]
	if known == nil || !known.synced() {
		return nil, fmt.Errorf("count %s: %w", resource, errUnserved)
	}
	list := known.list()
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// handler requeues the quotas in an object's namespace that count its kind.
func (w *wakeups) handler(resource schema.GroupResource) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initially bool) {
			// Existing objects are counted when the watch has started.
			if o, ok := obj.(client.Object); ok && !initially {
				w.created(resource, o.GetNamespace())
			}
		},
		UpdateFunc: func(old, now any) {
			before, beforeOK := old.(client.Object)
			if o, ok := now.(client.Object); ok && beforeOK {
				w.changed(resource, o, before)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(client.Object); ok {
				w.released(resource, o.GetNamespace())
			}
		},
	}
}
