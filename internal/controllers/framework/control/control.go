// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control defines the environment that every controller gets: a shared cache
// to read from, a client that writes under the controller's own identity, an event
// recorder and a clock. A controller exports a name and an Add(Env) error that
// registers its Reconcile and its watches.
package control

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
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
	// Source is the source of its events, if it differs from Name.
	Source string
	// Needs is a resource without which the controller is not started, if the API can be configured not
	// to serve it.
	Needs schema.GroupVersionResource
	// Root controllers act as the controller manager itself: the controller that issues
	// the tokens of service accounts cannot depend on one.
	Root bool
	// Add registers the controller with the manager of env.
	Add func(env Env) error
}

// Env is the environment of one controller.
type Env struct {
	// Manager owns the shared informer cache and runs the controllers. Use it
	// for watches, field indexes and runnables; write with Client.
	Manager manager.Manager
	// Client reads from the shared cache and writes as the controller. Objects listed
	// with client.UnsafeDisableDeepCopy must not be modified.
	Client client.Client
	// Live reads from the API, for the few decisions that must not use a stale cache
	// (the recheck of the ControllerRef rules before adoption).
	Live client.Reader
	// Config configures clients of other kinds that act as the controller, such as a scale client.
	Config *rest.Config
	// Discovery lists the resources that the API serves now.
	Discovery discovery.DiscoveryInterface
	// Events records core/v1 events whose source is the controller.
	Events record.EventRecorder
	// Clock is the only source of time.
	Clock clock.WithTicker
	// Starts, if set, counts the controller until it has started.
	Starts *Starts
}

// Options returns the options of a controller with the given number of workers. The
// delays of its queue follow the Env's clock, so that tests which move the clock also
// move RequeueAfter.
func (e Env) Options(workers int) controller.Options {
	started := e.Starts.expect()
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return &queue{started: started, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: e.Clock})}
		},
	}
}

// Every runs a function when the cache has synced and then at each interval, for work
// that does not need a watch. Errors are logged and retried at the next interval.
func (e Env) Every(interval time.Duration, do func(context.Context) error) error {
	return e.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !e.Manager.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		ticker := e.Clock.NewTicker(interval)
		defer ticker.Stop()
		for {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Periodic work failed, retrying", "after", interval)
			}
			select {
			case <-ticker.C():
			case <-ctx.Done():
				return nil
			}
		}
	}))
}

// Select returns a separate cache of the objects of a kind, in one namespace or in all
// (""), that match a field selector. It is for controllers that need only a few objects
// of a kind that is too numerous to cache, such as Secrets.
func (e Env) Select(kind client.Object, namespace string, selector fields.Selector) (cache.Cache, error) {
	by := cache.ByObject{Field: selector}
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

// SoonerOf returns the shorter of two delays of a requeue. 0 means never, as in
// ctrl.Result.RequeueAfter.
func SoonerOf(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}
