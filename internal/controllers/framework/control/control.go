// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control is what every controller is handed: one shared cache to read
// from, a client that writes under the controller's own identity, a recorder
// and a clock. A controller package exports a Name and an Add(Env) error that
// registers its Reconcile and the watches that wake it; it knows nothing else.
package control

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Controller is one entry of the list of controllers.
type Controller struct {
	// Name is the controller's identity: it acts as the user
	// system:serviceaccount:kube-system:<Name>, as upstream's controllers do
	// with --use-service-account-credentials.
	Name string
	// Source is what its events name as theirs, if that is not Name.
	Source string
	// Root says that it acts as the controller manager itself: who makes the tokens
	// of service accounts does not live by one.
	Root bool
	// Add registers the controller with the manager of env.
	Add func(env Env) error
}

// Env is the world as one controller sees it.
type Env struct {
	// Manager owns the shared informer cache and runs the controllers. Use it
	// for watches, field indexes and runnables; write with Client.
	Manager manager.Manager
	// Client reads from the shared cache and writes as the controller. What it
	// returns from the cache must not be changed without a DeepCopy.
	Client client.Client
	// Live reads from the API itself, for the few decisions which must not be
	// made from a stale cache (ControllerRef's recheck before adoption).
	Live client.Reader
	// Discovery says what the API serves today.
	Discovery discovery.DiscoveryInterface
	// Events records core/v1 events whose source is the controller.
	Events record.EventRecorder
	// Clock is the only source of time.
	Clock clock.WithTicker
}

// Options are the options that every reconciling controller starts from: the
// given number of workers and a queue whose delays follow the Env's clock, so
// that a test which moves the clock also moves RequeueAfter.
func (e Env) Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: e.Clock})
		},
	}
}

// Every lets something be done as soon as the cache is there and then at each
// interval: for what is looked for rather than waited for. A failure is logged, and
// the next round is the next try.
func (e Env) Every(interval time.Duration, do func(context.Context) error) error {
	return e.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !e.Manager.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		ticker := e.Clock.NewTicker(interval)
		defer ticker.Stop()
		for {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "A regular look failed; the next one tries again", "after", interval)
			}
			select {
			case <-ticker.C():
			case <-ctx.Done():
				return nil
			}
		}
	}))
}

// Select returns a cache of its own for those objects of a kind, in one namespace or in
// all (""), that a field selector chooses: for controllers that need few of a kind of
// which all would be too many to keep in memory.
func (e Env) Select(kind client.Object, namespace string, chosen fields.Selector) (cache.Cache, error) {
	by := cache.ByObject{Field: chosen}
	if namespace != "" {
		by.Namespaces = map[string]cache.Config{namespace: {}}
	}
	selected, err := cache.New(e.Manager.GetConfig(), cache.Options{
		HTTPClient: e.Manager.GetHTTPClient(), Scheme: e.Manager.GetScheme(), Mapper: e.Manager.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{kind: by},
	})
	if err != nil {
		return nil, err
	}
	return selected, e.Manager.Add(selected)
}
