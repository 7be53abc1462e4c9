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

// informers is what the manager's cache can do for the controller.
type informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
	RemoveInformer(ctx context.Context, obj client.Object) error
}

// errUnserved: nobody serves the kind, or it has no namespaced objects to count.
var errUnserved = errors.New("not served")

// verbs are what a kind must be able to do for its objects to be counted.
var verbs = []string{"create", "list", "watch", "delete"}

// watches are those of the kinds that some quota counts.
type watches struct {
	cache  informers
	served discovery.DiscoveryInterface
	clock  clock.PassiveClock
	wake   *wakeups

	// mu is held to read what is watched as well: a cache that is asked for a kind
	// which was just given up would begin to watch it again, and wait for ever.
	mu   sync.RWMutex
	open map[schema.GroupResource]*watch
}

type watch struct {
	// begun is when the watch was, looked when the server was last asked for the kind.
	begun, looked time.Time
	object        client.Object
	list          func() client.ObjectList
	synced        func() bool
}

// kind is that of a watch for metadata; those of whole objects have none.
func (w *watch) kind() schema.GroupVersionKind {
	return w.object.GetObjectKind().GroupVersionKind()
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

// watch begins to watch a kind, unless that was done before. A kind whose version was
// withdrawn is watched by another.
func (w *watches) watch(ctx context.Context, resource schema.GroupResource) (*watch, error) {
	known := w.known(resource)
	if known != nil && !w.due(resource, known) {
		return known, nil
	}
	looked := w.clock.Now()
	found, err := w.find(resource)
	switch {
	case err == nil:
		return w.follow(ctx, resource, found, looked)
	case errors.Is(err, errUnserved):
		return nil, errors.Join(err, w.end(ctx, resource))
	case known != nil: // Who cannot be asked now is asked again; what was seen is true still.
		return known, nil
	default:
		return nil, err
	}
}

// follow has a kind watched as it was found; another watch of it ends.
func (w *watches) follow(ctx context.Context, resource schema.GroupResource, found *watch, looked time.Time) (*watch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.open[resource]; known != nil && known.kind() == found.kind() {
		known.looked = looked
		return known, nil
	}
	if err := w.close(ctx, resource); err != nil {
		return nil, err
	}
	found.begun, found.looked = w.clock.Now(), looked
	return found, w.begin(ctx, resource, found)
}

func (w *watches) known(resource schema.GroupResource) *watch {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.open[resource]
}

// due is whether to ask the server again for a kind that is watched: now and then, and
// until what it serves has settled after a change.
func (w *watches) due(resource schema.GroupResource, known *watch) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	age := w.clock.Since(known.looked)
	return age >= resync || age >= settling && known.looked.Before(w.wake.settled(resource))
}

// unsettled is whether a kind may be served otherwise in a moment.
func (w *watches) unsettled(resource schema.GroupResource) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	known := w.open[resource]
	return known != nil && known.looked.Before(w.wake.settled(resource))
}

func (w *watches) begin(ctx context.Context, resource schema.GroupResource, begun *watch) error {
	informer, err := w.cache.GetInformer(ctx, begun.object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(w.wake.handler(resource))
	if err != nil {
		return err
	}
	begun.synced = registration.HasSynced
	w.open[resource] = begun
	return nil
}

// find says how to watch a kind.
func (w *watches) find(resource schema.GroupResource) (*watch, error) {
	if object, list := whole(resource); object != nil {
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

// end stops watching a kind whose CRD is gone: its informer would be refused for ever.
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

// list reads what is there of a watched kind in a namespace.
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
				w.released(resource, o.GetNamespace())
			}
		},
	}
}
