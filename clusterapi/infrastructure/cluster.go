// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/hostclient"
	"github.com/kindred-project/kindred/clusterapi/owner"
)

const (
	// probePeriod is the interval at which servers are tried, if there are several.
	probePeriod = 5 * time.Second
	// restorePeriod is the interval at which an endpoint is set that does not change.
	restorePeriod = time.Minute
	// probeLimit limits the time until a server accepts a connection.
	probeLimit = time.Second
)

// Reasons of the condition Ready of a KindredCluster.
const (
	endpointReason       = "EndpointAvailable"
	endpointFailedReason = "EndpointFailed"
	rangeTakenReason     = "RangeTaken"
)

// ClusterReconciler gives KindredClusters an endpoint that leads to their servers.
type ClusterReconciler struct {
	Client client.Client
	Host   Host
	// Owner is as in MachineReconciler.
	Owner string
	// Accepts reports whether a server accepts connections. It is set by SetupWithManager.
	Accepts func(ctx context.Context, address string) bool
	Clock   clock.PassiveClock

	// set are the endpoints that were set lately, by their names. There is one reconciliation at a time.
	set map[string]setEndpoint
}

// setEndpoint is an endpoint that was set.
type setEndpoint struct {
	hostclient.Endpoint
	at time.Time
}

// SetupWithManager registers the controller.
func (r *ClusterReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if r.Accepts == nil {
		r.Accepts = accepts
	}
	kind := infrav1.GroupVersion.WithKind("KindredCluster")
	return ctrl.NewControllerManagedBy(mgr).
		For(&infrav1.KindredCluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(util.ClusterToInfrastructureMapFunc(ctx, kind, mgr.GetClient(), &infrav1.KindredCluster{}))).
		Watches(&infrav1.KindredMachine{}, handler.EnqueueRequestsFromMapFunc(r.ofServer)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofServer)).
		Complete(r)
}

// ofServer returns the KindredCluster of a Machine or KindredMachine of a control plane.
func (r *ClusterReconciler) ofServer(ctx context.Context, machine client.Object) []ctrl.Request {
	if !isServer(machine) {
		return nil
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, metav1.ObjectMeta{Namespace: machine.GetNamespace(), Labels: machine.GetLabels()})
	if err != nil || cluster.Spec.InfrastructureRef.Name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}}}
}

// isServer reports whether a machine is one of a control plane.
func isServer(machine client.Object) bool {
	_, labelled := machine.GetLabels()[clusterv1.MachineControlPlaneLabel]
	return labelled
}

// accepts tries to connect to a server.
func accepts(ctx context.Context, address string) bool {
	connection, err := (&net.Dialer{Timeout: probeLimit}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}

// Reconcile makes the endpoint of a KindredCluster, or removes it.
func (r *ClusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, failed error) {
	c := &infrav1.KindredCluster{}
	if err := r.Client.Get(ctx, request.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if annotations.IsExternallyManaged(c) {
		return ctrl.Result{}, nil // another system writes its endpoint and its status
	}
	cluster, err := r.clusterOf(ctx, c)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil {
		return owner.Await(ctx, r.Client, r.Clock.Now(), c, clusterv1.ReadyCondition, "Cluster")
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, c); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(c, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		err := helper.Patch(ctx, c, patch.WithOwnedConditions{Conditions: []string{clusterv1.ReadyCondition}})
		if c.DeletionTimestamp.IsZero() || !apierrors.IsNotFound(err) {
			failed = kerrors.NewAggregate([]error{failed, err})
		}
	}()
	if !c.DeletionTimestamp.IsZero() {
		return r.remove(ctx, cluster, c)
	}
	if controllerutil.AddFinalizer(c, infrav1.ClusterFinalizer) {
		return ctrl.Result{}, nil // the patch causes the next request
	}
	return r.provision(ctx, cluster, c)
}

// clusterOf returns the Cluster of a KindredCluster, or nil: its owner, or the one that names it. Cluster API makes a Cluster the owner and looks
// whether there is an endpoint in one reconciliation, and does not look again for a second.
func (r *ClusterReconciler) clusterOf(ctx context.Context, c *infrav1.KindredCluster) (*clusterv1.Cluster, error) {
	if cluster, err := util.GetOwnerCluster(ctx, r.Client, c.ObjectMeta); err != nil || cluster != nil {
		return cluster, err
	}
	var all clusterv1.ClusterList
	if err := r.Client.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return nil, err
	}
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "KindredCluster", Name: c.Name}
	for i := range all.Items {
		if all.Items[i].Spec.InfrastructureRef == ref {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}

// remove removes the endpoint once the cluster has no machines: until then they use it.
func (r *ClusterReconciler) remove(ctx context.Context, cluster *clusterv1.Cluster, c *infrav1.KindredCluster) (ctrl.Result, error) {
	machines, err := r.machines(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(machines) > 0 {
		notReady(c, clusterv1.DeletingReason, fmt.Sprintf("%d machines of the cluster are left", len(machines)))
		return ctrl.Result{RequeueAfter: probePeriod}, nil
	}
	if name, made := c.Annotations[endpointAnnotation]; made {
		if err := r.Host.DeleteEndpoint(ctx, name); err != nil {
			notReady(c, endpointFailedReason, err.Error())
			return ctrl.Result{}, err
		}
		delete(r.set, name)
	}
	controllerutil.RemoveFinalizer(c, infrav1.ClusterFinalizer)
	return ctrl.Result{}, nil
}

// endpointAnnotation has the name of the endpoint on the host. It is stored before the endpoint is made, as the provider ID of a machine.
const endpointAnnotation = "infrastructure.cluster.x-k8s.io/kindred-endpoint"

// provision makes the endpoint, and lets it lead to the servers.
func (r *ClusterReconciler) provision(ctx context.Context, cluster *clusterv1.Cluster, c *infrav1.KindredCluster) (ctrl.Result, error) {
	name, chosen := c.Annotations[endpointAnnotation]
	if !chosen {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, endpointAnnotation, chooseName(c))
		return ctrl.Result{}, nil
	}
	port := cmp.Or(c.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ControlPlaneEndpoint.Port, cluster.Spec.ClusterNetwork.APIServerPort, infrav1.DefaultPort)
	servers, several, err := r.servers(ctx, cluster, port)
	if err != nil {
		return ctrl.Result{}, err
	}
	endpoint, err := r.ensure(ctx, hostclient.Endpoint{
		Name: name, Owner: r.Owner, Address: c.Spec.ControlPlaneEndpoint.Host, Port: port, Servers: servers,
	})
	if err != nil {
		notReady(c, endpointFailedReason, err.Error())
		return ctrl.Result{}, err
	}
	if !ptr.Deref(c.Status.Initialization.Provisioned, false) {
		if taken := takenRange(cluster.Spec.ClusterNetwork, endpoint.Network); taken != "" {
			notReady(c, rangeTakenReason, taken)
			return ctrl.Result{}, nil // a change of the Cluster causes the next request
		}
	}
	c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Address, Port: endpoint.Port}
	c.Status.Initialization.Provisioned = ptr.To(true)
	conditions.Set(c, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: endpointReason})
	if several {
		return ctrl.Result{RequeueAfter: probePeriod}, nil
	}
	return ctrl.Result{RequeueAfter: restorePeriod}, nil
}

// takenRange says which range of a Cluster's pods or Services has addresses of the network of machines: connections to machines would end at
// pods or Services instead. It returns "" if none has.
func takenRange(ranges clusterv1.ClusterNetwork, machines string) string {
	network, err := netip.ParsePrefix(machines)
	if err != nil {
		return "" // the host does not say it
	}
	for _, r := range []struct {
		field  string
		blocks []string
	}{{"services", ranges.Services.CIDRBlocks}, {"pods", ranges.Pods.CIDRBlocks}} {
		for _, block := range r.blocks {
			if p, err := netip.ParsePrefix(block); err == nil && p.Overlaps(network) {
				return fmt.Sprintf("%s of spec.clusterNetwork.%s of the Cluster overlaps %s, the network of the machines of this host; choose another range", block, r.field, network)
			}
		}
	}
	return ""
}

// ensure sets an endpoint, unless it was set lately: the host keeps it, unless somebody else changes its rules.
func (r *ClusterReconciler) ensure(ctx context.Context, e hostclient.Endpoint) (hostclient.Endpoint, error) {
	last, known := r.set[e.Name]
	asked := last.Endpoint
	asked.Network = "" // only the host says it
	if now := r.Clock.Now(); known && now.Sub(last.at) < restorePeriod && equality.Semantic.DeepEqual(asked, e) {
		return last.Endpoint, nil
	}
	endpoint, err := r.Host.SetEndpoint(ctx, e)
	if err != nil {
		return e, err
	}
	if r.set == nil {
		r.set = map[string]setEndpoint{}
	}
	r.set[e.Name] = setEndpoint{endpoint, r.Clock.Now()}
	return endpoint, nil
}

// servers returns the addresses of the servers that connections are to reach: of several, those that accept connections. It reports
// whether there are several. If none accepts any, all are returned, as nothing is known then.
func (r *ClusterReconciler) servers(ctx context.Context, cluster *clusterv1.Cluster, port int32) (addresses []string, several bool, err error) {
	machines, err := r.machines(ctx, cluster)
	if err != nil {
		return nil, false, err
	}
	for _, m := range machines {
		if !isServer(&m) || !m.DeletionTimestamp.IsZero() {
			continue
		}
		leaving, err := r.leaves(ctx, m)
		if err != nil {
			return nil, false, err
		}
		if leaving {
			continue
		}
		for _, a := range m.Status.Addresses {
			if a.Type == clusterv1.MachineInternalIP {
				addresses = append(addresses, a.Address)
			}
		}
	}
	slices.Sort(addresses)
	if len(addresses) < 2 {
		return addresses, false, nil
	}
	var accepting []string
	for _, address := range addresses {
		if r.Accepts(ctx, net.JoinHostPort(address, strconv.Itoa(int(port)))) {
			accepting = append(accepting, address)
		}
	}
	if len(accepting) == 0 {
		return addresses, true, nil
	}
	return accepting, true, nil
}

// leaves reports whether the Machine of a KindredMachine is being deleted: its node is drained, and its server leaves the cluster, before the
// KindredMachine is deleted.
func (r *ClusterReconciler) leaves(ctx context.Context, m infrav1.KindredMachine) (bool, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, m.ObjectMeta)
	if err != nil || machine == nil {
		return false, client.IgnoreNotFound(err)
	}
	return !machine.DeletionTimestamp.IsZero(), nil
}

// machines returns the KindredMachines of a cluster.
func (r *ClusterReconciler) machines(ctx context.Context, cluster *clusterv1.Cluster) ([]infrav1.KindredMachine, error) {
	var list infrav1.KindredMachineList
	err := r.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	return list.Items, err
}
