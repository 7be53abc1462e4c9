// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Name is the controller's identity, upstream's.
const Name = "service-controller"

const (
	// finalizer is upstream's, k8s.io/cloud-provider/service/helpers.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"
	// classes is the prefix of the values of spec.loadBalancerClass that are this controller's.
	classes = "kindred.dev/"
)

// Options configure the controller.
type Options struct {
	// Pools are the ranges of addresses. Without any, the addresses of nodes are used.
	Pools []netip.Prefix
	// Simulated is the label of simulated nodes, whose addresses are used only if there is no other node.
	Simulated string
}

// Add returns the function that registers the controller. It watches Services, and Nodes for their addresses.
func Add(options Options) func(control.Env) error {
	return func(env control.Env) error {
		r := newReconciler(env, options)
		return ctrl.NewControllerManagedBy(env.Manager).
			Named("load-balancer-controller").
			WithOptions(env.Options(1)). // one at a time: no two Services get the same address
			For(&corev1.Service{}).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.balanced), builder.WithPredicates(predicate.Funcs{
				UpdateFunc: func(e event.UpdateEvent) bool {
					old, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
					return !slices.Equal(old.Status.Addresses, now.Status.Addresses) || excluded(old) != excluded(now)
				},
			})).
			Complete(r)
	}
}

type reconciler struct {
	control.Env
	Options
	table *table
	// read is set when the statuses of all Services have been read into the table.
	read bool
	// waiting has the Services without an address, with the reason.
	waiting map[types.NamespacedName]string
}

func newReconciler(env control.Env, options Options) *reconciler {
	return &reconciler{Env: env, Options: options, table: newTable(options.Pools), waiting: map[types.NamespacedName]string{}}
}

// balanced returns a request for each Service of this controller.
func (r *reconciler) balanced(ctx context.Context, _ client.Object) []reconcile.Request {
	services := &corev1.ServiceList{}
	if err := r.Client.List(ctx, services); err != nil {
		return nil // a cache fails only before it is started
	}
	var requests []reconcile.Request
	for i := range services.Items {
		if wants(&services.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&services.Items[i])})
		}
	}
	return requests
}

// wants reports whether a Service is to have addresses from this controller.
func wants(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.DeletionTimestamp == nil && ours(svc)
}

func ours(svc *corev1.Service) bool {
	return svc.Spec.LoadBalancerClass == nil || strings.HasPrefix(*svc.Spec.LoadBalancerClass, classes)
}

// Reconcile brings one Service up to date, and then those that wait for what it may have released.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.readStatuses(ctx); err != nil {
		return ctrl.Result{}, err
	}
	before := len(r.table.held[req.NamespacedName])
	old := slices.Clone(r.table.held[req.NamespacedName])
	if err := r.sync(ctx, req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	if before == 0 || slices.Equal(old, r.table.held[req.NamespacedName]) {
		return ctrl.Result{}, nil
	}
	for _, key := range r.waitingKeys() {
		if err := r.sync(ctx, key); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) waitingKeys() []types.NamespacedName {
	var keys []types.NamespacedName
	for key := range r.waiting {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// readStatuses claims the addresses that Services have from an earlier process. Of two Services with one address, the
// older keeps it.
func (r *reconciler) readStatuses(ctx context.Context) error {
	if r.read {
		return nil
	}
	services := &corev1.ServiceList{}
	if err := r.Client.List(ctx, services); err != nil {
		return err
	}
	slices.SortFunc(services.Items, func(a, b corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for i := range services.Items {
		if wants(&services.Items[i]) {
			r.table.keep(wishOf(&services.Items[i]))
		}
	}
	r.read = true
	return nil
}

func (r *reconciler) sync(ctx context.Context, key types.NamespacedName) error {
	svc := &corev1.Service{}
	if err := r.Client.Get(ctx, key, svc); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(key)
		}
		return client.IgnoreNotFound(err)
	}
	if !wants(svc) {
		if err := r.cleanUp(ctx, svc); err != nil {
			return owned.IgnoreStale(err) // its status still has the address
		}
		r.forget(key)
		return nil
	}
	nodes, err := r.nodeAddresses(ctx)
	if err != nil {
		return err
	}
	addresses, problem := r.table.assign(wishOf(svc), nodes)
	if problem == nil {
		delete(r.waiting, key)
	} else if r.waiting[key] != problem.Error() {
		r.waiting[key] = problem.Error()
		r.Events.Eventf(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: %v", problem)
	}
	err = r.write(ctx, svc, addresses)
	if err != nil {
		r.table.keep(wishOf(svc)) // its status still has them
	}
	return owned.IgnoreStale(err)
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.table.release(key)
	delete(r.waiting, key)
}

// cleanUp removes the addresses and the finalizer of a Service that has no load balancer any more. The status of
// a Service with another controller's class is left alone.
func (r *reconciler) cleanUp(ctx context.Context, svc *corev1.Service) error {
	if !controllerutil.ContainsFinalizer(svc, finalizer) || svc.Spec.Type == corev1.ServiceTypeLoadBalancer && !ours(svc) {
		return nil
	}
	r.Events.Event(svc, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	cleaned := svc.DeepCopy()
	cleaned.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	controllerutil.RemoveFinalizer(cleaned, finalizer)
	if err := r.Client.Status().Update(ctx, cleaned); err != nil {
		return err
	}
	r.Events.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// write writes the addresses of a Service, if they changed.
func (r *reconciler) write(ctx context.Context, svc *corev1.Service, addresses []netip.Addr) error {
	var ingress []corev1.LoadBalancerIngress
	for _, a := range addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
	}
	updated := svc.DeepCopy()
	added := len(ingress) > 0 && controllerutil.AddFinalizer(updated, finalizer)
	if !added && slices.EqualFunc(svc.Status.LoadBalancer.Ingress, ingress, sameAddress) {
		return nil
	}
	was := len(svc.Status.LoadBalancer.Ingress) > 0
	if len(ingress) > 0 && !was {
		r.Events.Event(svc, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
	}
	updated.Status.LoadBalancer.Ingress = ingress
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return err
	}
	switch {
	case len(ingress) == 0:
	case was:
		r.Events.Event(svc, corev1.EventTypeNormal, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
	default:
		r.Events.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return nil
}

func sameAddress(a, b corev1.LoadBalancerIngress) bool {
	return a.IP == b.IP && a.Hostname == b.Hostname && ptr.Equal(a.IPMode, b.IPMode)
}

func wishOf(svc *corev1.Service) wish {
	w := wish{key: client.ObjectKeyFromObject(svc), families: svc.Spec.IPFamilies}
	if a, err := netip.ParseAddr(svc.Spec.LoadBalancerIP); err == nil {
		w.required = a.Unmap()
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			w.current = append(w.current, a.Unmap())
		}
	}
	for _, p := range svc.Spec.Ports {
		w.ports = append(w.ports, port{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port})
	}
	return w
}

// nodeAddresses returns the addresses of the nodes that clients outside of the cluster can use, sorted. With pools
// there is no need of them.
func (r *reconciler) nodeAddresses(ctx context.Context) ([]netip.Addr, error) {
	if len(r.Pools) > 0 {
		return nil, nil
	}
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes); err != nil {
		return nil, err
	}
	isReal := func(n corev1.Node) bool { _, simulated := n.Labels[r.Simulated]; return !simulated }
	onlyReal := slices.ContainsFunc(nodes.Items, isReal)
	var all []netip.Addr
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !excluded(n) && (!onlyReal || isReal(*n)) {
			all = append(all, addressesOf(n)...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// excluded reports whether load balancers leave a node out.
func excluded(n *corev1.Node) bool {
	_, label := n.Labels[corev1.LabelNodeExcludeBalancers]
	return label || n.DeletionTimestamp != nil
}

// addressesOf returns the external addresses of a node, or if it has none, the internal ones.
func addressesOf(n *corev1.Node) []netip.Addr {
	var external, internal []netip.Addr
	for _, address := range n.Status.Addresses {
		a, err := netip.ParseAddr(address.Address)
		switch {
		case err != nil:
		case address.Type == corev1.NodeExternalIP:
			external = append(external, a.Unmap())
		case address.Type == corev1.NodeInternalIP:
			internal = append(internal, a.Unmap())
		}
	}
	if len(external) > 0 {
		return external
	}
	return internal
}
