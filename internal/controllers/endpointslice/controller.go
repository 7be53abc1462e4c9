// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kindred-project/kindred/internal/controllers/framework/backends"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// Name is the controller's identity.
const Name = "endpointslice-controller"

const (
	workers = 5
	// managedBy is the value of the managed-by label of slices.
	managedBy = "endpointslice-controller.k8s.io"
	// maxEndpoints is the maximum number of endpoints in a slice.
	maxEndpoints = 100
)

// Add registers the controller.
func Add(env control.Env) error {
	seen, err := owned.Index(context.Background(), env.Manager.GetCache(), &discoveryv1.EndpointSlice{})
	if err != nil {
		return err
	}
	r := newReconciler(env, seen)
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&corev1.Service{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.servicesOf), builder.WithPredicates(backends.PodChanges())).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(backends.ServiceOfSlice(managedBy))).
		Watches(&corev1.Node{}, nodeChanged(), builder.WithPredicates(zoneChanges())).
		WatchesRawSource(source.Channel(r.outdated, &handler.EnqueueRequestForObject{})).
		Complete(r)
}

type reconciler struct {
	client   client.Client
	live     client.Reader
	events   record.EventRecorder
	ledger   *owned.Ledger[*discoveryv1.EndpointSlice]
	triggers *util.TriggerTimeTracker
	tracker  *util.EndpointSliceTracker
	topology *topologycache.TopologyCache
	slices   *endpointslice.Reconciler
	// outdated are Services whose hints are outdated, because nodes have changed.
	outdated chan event.GenericEvent
}

func newReconciler(env control.Env, seen func() string) *reconciler {
	r := &reconciler{
		client:   env.Client,
		live:     env.Live,
		events:   env.Events,
		ledger:   owned.NewLedger[*discoveryv1.EndpointSlice](seen),
		triggers: util.NewTriggerTimeTracker(),
		tracker:  util.NewEndpointSliceTracker(),
		topology: topologycache.NewTopologyCache(),
		outdated: make(chan event.GenericEvent),
	}
	r.slices = endpointslice.NewReconciler(clientset{r: r}, nodeLister{env.Client}, maxEndpoints, r.tracker, r.topology, env.Events, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return r
}

// Reconcile brings the slices of one Service up to date, or the topology of the nodes.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req == nodes {
		return ctrl.Result{}, r.reconcileNodes(ctx)
	}
	service := &corev1.Service{}
	if ok, err := owned.Fetch(ctx, r.client, req, service, r.forget); !ok {
		return ctrl.Result{}, err
	}
	// The endpoints of a Service without selector are managed by users; an ExternalName
	// has none. The garbage collector deletes the slices of a deleted Service.
	if !backends.Selects(service) || service.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	selected, err := pods.List(ctx, r.client, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector), client.UnsafeDisableDeepCopy)
	if err != nil {
		return ctrl.Result{}, err
	}
	existing, err := r.ledger.Read(service, func() ([]*discoveryv1.EndpointSlice, error) { return r.list(ctx, service) })
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, selected)
	err = owned.IgnoreStale(r.slices.Reconcile(klog.FromContext(ctx), service, selected, existing, changed))
	if err != nil {
		r.events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, err)
	}
	return ctrl.Result{}, err
}

// list returns the slices of a Service that this controller has created.
func (r *reconciler) list(ctx context.Context, service *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	found := &discoveryv1.EndpointSliceList{}
	err := r.client.List(ctx, found, client.InNamespace(service.Namespace), client.MatchingLabels{
		discoveryv1.LabelServiceName: service.Name,
		discoveryv1.LabelManagedBy:   managedBy,
	}, client.UnsafeDisableDeepCopy)
	var out []*discoveryv1.EndpointSlice
	for i := range found.Items {
		if found.Items[i].DeletionTimestamp == nil {
			out = append(out, &found.Items[i])
		}
	}
	return out, err
}

func (r *reconciler) forget(service types.NamespacedName) {
	r.ledger.Forget(service)
	r.triggers.DeleteService(service.Namespace, service.Name)
	r.tracker.DeleteService(service.Namespace, service.Name)
	r.slices.DeleteService(service.Namespace, service.Name)
}

func (r *reconciler) servicesOf(ctx context.Context, pod client.Object) []reconcile.Request {
	return backends.ServicesOf(ctx, r.client, pod)
}

// nodes is the request for the topology of the nodes. Those of Services have a namespace.
var nodes = reconcile.Request{NamespacedName: types.NamespacedName{Name: "nodes"}}

// nodesDelay lets many nodes change before they are all read.
const nodesDelay = 100 * time.Millisecond

// nodeChanged requests the topology of the nodes.
func nodeChanged() handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(nodes, nodesDelay) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(nodes, nodesDelay) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(nodes, nodesDelay) },
	}
}

// reconcileNodes updates the topology of the nodes, and requests the Services whose hints are outdated.
func (r *reconciler) reconcileNodes(ctx context.Context) error {
	all, err := nodeLister{r.client}.all(ctx)
	if err != nil {
		return err
	}
	r.topology.SetNodes(klog.FromContext(ctx), all)
	for _, key := range r.topology.GetOverloadedServices() {
		name, ok := parseKey(key)
		if !ok {
			continue
		}
		select {
		case r.outdated <- event.GenericEvent{Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}}:
		case <-ctx.Done():
		}
	}
	return nil
}

// zoneChanges passes the events that change the ready nodes of a zone.
func zoneChanges() predicate.Predicate {
	zone := func(obj client.Object) string { return obj.GetLabels()[corev1.LabelTopologyZone] }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return zone(e.ObjectOld) != zone(e.ObjectNew) || backends.IsNodeReady(e.ObjectOld) != backends.IsNodeReady(e.ObjectNew)
	}}
}
