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
	// countDelay delays the count after a creation, which admission has charged already, so
	// that one count covers many creations.
	countDelay = time.Second
	// crdServedWithin is the time that the server may take to serve a changed CRD.
	crdServedWithin = 10 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// wakeups requeues the quotas that count a changed object.
type wakeups struct {
	client client.Reader
	clock  clock.PassiveClock
	// known holds the evaluators of kinds of which quotas count more than the number.
	known []library.Evaluator

	mu    sync.Mutex
	queue queue
	// changes holds when the CRD of a kind last changed.
	changes map[schema.GroupResource]time.Time
	// freed holds the quotas whose usage was reduced.
	freed map[client.ObjectKey]bool
}

// start implements source.Func. It receives the controller's queue.
func (w *wakeups) start(_ context.Context, q queue) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
	return nil
}

func (w *wakeups) created(resource schema.GroupResource, namespace string) {
	for _, key := range w.counting(resource, namespace) {
		w.add(reconcile.Request{NamespacedName: key}, countDelay)
	}
}

// released requeues without delay, since freed resources may be in demand.
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

// takeFreed reports whether the usage of a quota was reduced since the last call.
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

// counting returns the quotas that count a kind, in a namespace or in all.
func (w *wakeups) counting(resource schema.GroupResource, namespace string) []client.ObjectKey {
	all := &corev1.ResourceQuotaList{}
	if err := w.client.List(context.Background(), all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		klog.Background().Error(err, "Cannot read quotas from the cache", "namespace", namespace)
		return nil
	}
	// Only the kind's evaluators are asked, since that of devices may read from the API.
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

// unservedRetry returns when to check again for a kind that is not served.
func (w *wakeups) unservedRetry(resource schema.GroupResource) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.changes[resource]; ok && w.clock.Since(last) < crdServedWithin {
		return shortDelay
	}
	return unservedDelay
}

// servedBy returns when the last change of a kind's CRD is certainly served.
func (w *wakeups) servedBy(resource schema.GroupResource) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, changed := w.changes[resource]
	if !changed {
		return time.Time{}
	}
	return last.Add(crdServedWithin)
}

// crdHandler requeues the quotas that count the resource of a changed CRD.
func (r *reconciler) crdHandler() handler.EventHandler {
	wake := func(crd client.Object) {
		r.wakeups.crdChanged(schema.ParseGroupResource(crd.GetName()))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { wake(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { wake(e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) {
			resource := schema.ParseGroupResource(e.Object.GetName())
			r.wakeups.recordChange(resource) // discovery may still have it for a moment
			if err := r.watches.end(ctx, resource); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot stop the watch of a deleted CRD", "crd", e.Object.GetName())
			}
		},
	}
}

func (w *wakeups) crdChanged(resource schema.GroupResource) {
	keys := w.counting(resource, "")
	if len(keys) == 0 {
		return
	}
	w.recordChange(resource)
	for _, key := range keys {
		w.add(reconcile.Request{NamespacedName: key}, 0)
	}
}

// recordChange records that the CRD of a kind has just changed.
func (w *wakeups) recordChange(resource schema.GroupResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes == nil {
		w.changes = map[schema.GroupResource]time.Time{}
	}
	maps.DeleteFunc(w.changes, func(_ schema.GroupResource, last time.Time) bool { return w.clock.Since(last) > resync })
	w.changes[resource] = w.clock.Now()
}
