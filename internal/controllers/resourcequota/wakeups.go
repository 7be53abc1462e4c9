// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/quota"
)

const (
	// settling is how long after a creation a quota is counted: admission has charged
	// the object already, and many more may follow.
	settling = time.Second
	// announced is how long after a change of its CRD a kind may take to be served as
	// the CRD says.
	announced = 10 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wakeups put the quotas into the controller's queue that count what has changed.
type wakeups struct {
	client client.Reader
	clock  clock.PassiveClock
	// known are the evaluators of the kinds of which quotas count more than the number.
	known []library.Evaluator

	mu    sync.Mutex
	queue queue
	// changes has when the CRD of a kind changed last.
	changes map[schema.GroupResource]time.Time
	// freed are the quotas that count something which has gone or needs less.
	freed map[client.ObjectKey]bool
}

// start implements source.Func: the controller shows its queue.
func (w *wakeups) start(_ context.Context, q queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
	return nil
}

func (w *wakeups) created(resource schema.GroupResource, namespace string) {
	for _, key := range w.counting(resource, namespace) {
		w.add(reconcile.Request{NamespacedName: key}, settling)
	}
}

// released wakes at once: what is free again is wanted.
func (w *wakeups) released(resource schema.GroupResource, namespace string) {
	for _, key := range w.counting(resource, namespace) {
		w.free(key)
		w.add(reconcile.Request{NamespacedName: key}, 0)
	}
}

func (w *wakeups) changed(resource schema.GroupResource, now, old client.Object) {
	i := slices.IndexFunc(w.known, func(e library.Evaluator) bool { return e.GroupResource() == resource })
	if i >= 0 && len(w.counting(resource, now.GetNamespace())) > 0 && quota.Changed(w.known[i], now, old) {
		w.released(resource, now.GetNamespace())
	}
}

func (w *wakeups) free(key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.freed == nil {
		w.freed = map[client.ObjectKey]bool{}
	}
	w.freed[key] = true
}

// takeFreed says once whether a quota counts something that has gone.
func (w *wakeups) takeFreed(key client.ObjectKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	freed := w.freed[key]
	delete(w.freed, key)
	return freed
}

func (w *wakeups) add(request reconcile.Request, delay time.Duration) {
	w.mu.Lock()
	q := w.queue
	w.mu.Unlock()
	if q != nil {
		q.AddAfter(request, delay)
	}
}

// counting are the quotas of a namespace, or of all, that count a kind.
func (w *wakeups) counting(resource schema.GroupResource, namespace string) []client.ObjectKey {
	all := &corev1.ResourceQuotaList{}
	if err := w.client.List(context.Background(), all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		klog.Background().Error(err, "Cannot read quotas from the cache", "namespace", namespace)
		return nil
	}
	// Nobody else is asked: for some names the evaluator of devices reads from the API.
	ofKind := slices.DeleteFunc(slices.Clone(w.known), func(e library.Evaluator) bool { return e.GroupResource() != resource })
	var keys []client.ObjectKey
	for i := range all.Items {
		counted := slices.ContainsFunc(counting(&all.Items[i], ofKind, nil), func(e library.Evaluator) bool { return e.GroupResource() == resource })
		if counted {
			keys = append(keys, client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
	return keys
}

// patience is how long to wait before looking again for a kind that is not served.
func (w *wakeups) patience(resource schema.GroupResource) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.changes[resource]; ok && w.clock.Since(last) < announced {
		return soon
	}
	return unserved
}

// settled is when a kind is served as its CRD says since its last change.
func (w *wakeups) settled(resource schema.GroupResource) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, changed := w.changes[resource]
	if !changed {
		return time.Time{}
	}
	return last.Add(announced)
}

// announcements wake the quotas that count the kind of a CRD, whose name is that of
// the kind's resource.
func (r *reconciler) announcements() handler.EventHandler {
	wake := func(crd client.Object) {
		r.wakeups.announce(schema.ParseGroupResource(crd.GetName()))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { wake(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { wake(e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) {
			resource := schema.ParseGroupResource(e.Object.GetName())
			r.wakeups.note(resource) // discovery may tell of it a moment longer
			if err := r.watches.end(ctx, resource); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot stop watching a kind that is gone", "crd", e.Object.GetName())
			}
		},
	}
}

func (w *wakeups) announce(resource schema.GroupResource) {
	keys := w.counting(resource, "")
	if len(keys) == 0 {
		return
	}
	w.note(resource)
	for _, key := range keys {
		w.add(reconcile.Request{NamespacedName: key}, 0)
	}
}

// note remembers that the CRD of a kind has just changed.
func (w *wakeups) note(resource schema.GroupResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		w.changes = map[schema.GroupResource]time.Time{}
	}
	maps.DeleteFunc(w.changes, func(_ schema.GroupResource, last time.Time) bool { return w.clock.Since(last) > resync })
	w.changes[resource] = w.clock.Now()
}
