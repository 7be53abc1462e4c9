// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap is Cluster API's bootstrap provider Kindred: it makes the bootstrap data of machines on which Kindred runs.
package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/owner"
)

const (
	// tokenTTL limits the time until a machine joins, from when it can, and joinWait the time until then.
	tokenTTL = time.Hour
	joinWait = time.Hour
	// concurrentConfigs limits the tokens that are made at a time.
	concurrentConfigs = 5
	// retryPeriod is the delay while something of the management cluster is awaited.
	retryPeriod = 500 * time.Millisecond
)

// Workload is what the controller does in the cluster that a machine joins.
type Workload interface {
	// Authority returns the hash of the key of the cluster's authority.
	Authority(ctx context.Context, cluster *clusterv1.Cluster) (string, error)
	// Answers returns an error if the API of a cluster does not answer.
	Answers(ctx context.Context, cluster *clusterv1.Cluster) error
	// Admit lets machines join a cluster with a token for some time. It may be repeated.
	Admit(ctx context.Context, cluster *clusterv1.Cluster, token string, ttl time.Duration) error
}

// Reconciler makes the bootstrap data of KindredConfigs.
type Reconciler struct {
	Client   client.Client
	Workload Workload
	// Clock decides how often a cluster that does not answer is asked, and how long a KindredConfig may be without a Machine.
	Clock clock.PassiveClock
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &bootstrapv1.KindredConfigList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentConfigs}).
		For(&bootstrapv1.KindredConfig{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Complete(r)
}

// ofMachine returns the KindredConfig of a Machine.
func ofMachine(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok || machine.Spec.Bootstrap.ConfigRef.GroupKind() != bootstrapv1.GroupVersion.WithKind("KindredConfig").GroupKind() {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}}}
}

// Reconcile makes the bootstrap data of a KindredConfig.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, failed error) {
	c := &bootstrapv1.KindredConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, c); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !c.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.letGo(ctx, c)
	}
	machine, err := owner.Machine(ctx, r.Client, c)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if machine == nil {
		return owner.Await(ctx, r.Client, r.Clock.Now(), c, clusterv1.ReadyCondition, "Machine")
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, machine.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return owner.Await(ctx, r.Client, r.Clock.Now(), c, clusterv1.ReadyCondition, "Cluster")
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, c); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	if err := r.hold(ctx, c); err != nil {
		return ctrl.Result{}, err
	}
	before := c.DeepCopy()
	defer func() { failed = kerrors.NewAggregate([]error{failed, r.writeStatus(ctx, c, before)}) }()
	return r.provide(ctx, cluster, machine, c)
}

// hold adds the finalizer. It fails if the KindredConfig has changed since it was read, unlike Cluster API's EnsureFinalizer: a merge patch replaces all
// finalizers, and would drop one that was added meanwhile.
func (r *Reconciler) hold(ctx context.Context, c *bootstrapv1.KindredConfig) error {
	before := c.DeepCopy()
	if !controllerutil.AddFinalizer(c, bootstrapv1.Finalizer) {
		return nil
	}
	return r.Client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// letGo removes the finalizer of a KindredConfig that is being deleted. The garbage collector then deletes its Secret.
func (r *Reconciler) letGo(ctx context.Context, c *bootstrapv1.KindredConfig) error {
	before := c.DeepCopy()
	if !controllerutil.RemoveFinalizer(c, bootstrapv1.Finalizer) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// writeStatus writes the status in one patch. Of the two that Cluster API's helper sends, the first has the conditions only: Cluster API finds no
// bootstrap data when it reconciles the Machine for that, and does not look again for a second.
func (r *Reconciler) writeStatus(ctx context.Context, c, before *bootstrapv1.KindredConfig) error {
	c.Status.ObservedGeneration = c.Generation
	if equality.Semantic.DeepEqual(c.Status, before.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

const (
	// dataSecretAvailable is the condition that the bootstrap data exist.
	dataSecretAvailable = "DataSecretAvailable"
	// machineAdmitted is the condition that the cluster knows the token with which the machine joins.
	machineAdmitted = "MachineAdmitted"
)

// waits is why the bootstrap data cannot be made yet.
type waits struct {
	reason, message string
	// retry is set if nothing else leads to another attempt.
	retry bool
}

func (w waits) Error() string { return w.message }

// provide makes the bootstrap data, unless they exist, and lets the machine join.
func (r *Reconciler) provide(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, c *bootstrapv1.KindredConfig) (ctrl.Result, error) {
	s, err := r.existing(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	created := s == nil
	if created {
		s, err = r.create(ctx, cluster, machine, c)
	}
	var w waits
	if errors.As(err, &w) {
		set(c, metav1.ConditionFalse, w.reason, w.message, dataSecretAvailable, clusterv1.ReadyCondition)
		if w.retry {
			return ctrl.Result{RequeueAfter: retryPeriod}, nil
		}
		return ctrl.Result{}, nil
	}
	if err != nil {
		set(c, metav1.ConditionFalse, bootstrapv1.FailedReason, err.Error(), dataSecretAvailable, clusterv1.ReadyCondition)
		return ctrl.Result{}, err
	}
	c.Status.DataSecretName = c.Name
	c.Status.Initialization.DataSecretCreated = ptr.To(true)
	set(c, metav1.ConditionTrue, bootstrapv1.DataAvailableReason, "", dataSecretAvailable)
	if isServer(c) {
		set(c, metav1.ConditionTrue, bootstrapv1.DataAvailableReason, "", clusterv1.ReadyCondition)
		return ctrl.Result{}, nil
	}
	if created {
		awaitControlPlane(c) // whose API may take a while to answer, while Cluster API needs the status
		return ctrl.Result{RequeueAfter: minPause}, nil
	}
	return r.admit(ctx, cluster, c, s)
}

// set sets conditions to the same.
func set(c *bootstrapv1.KindredConfig, status metav1.ConditionStatus, reason, message string, kinds ...string) {
	for _, kind := range kinds {
		conditions.Set(c, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func isServer(c *bootstrapv1.KindredConfig) bool {
	return c.Spec.Role == bootstrapv1.Server || c.Spec.Role == bootstrapv1.FirstServer
}

// existing returns the Secret of a KindredConfig; nil if there is none. One that was moved from another cluster, or restored, gets its owner.
func (r *Reconciler) existing(ctx context.Context, c *bootstrapv1.KindredConfig) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(c), s); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if util.HasExactOwnerRef(s.OwnerReferences, ownerOf(c)) {
		return s, nil
	}
	before := s.DeepCopy()
	s.OwnerReferences = util.EnsureOwnerRef(withoutConfigs(s.OwnerReferences), ownerOf(c))
	return s, r.Client.Patch(ctx, s, client.MergeFrom(before))
}

// withoutConfigs removes references to KindredConfigs, which name one that the Secret had elsewhere.
func withoutConfigs(owners []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(owners), func(o metav1.OwnerReference) bool { return o.Kind == "KindredConfig" })
}

func ownerOf(c *bootstrapv1.KindredConfig) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, bootstrapv1.GroupVersion.WithKind("KindredConfig"))
}

// tokenKey is the key of the Secret that has the token of the machine until the cluster knows it. A Secret that is moved takes it along.
const tokenKey = "token"

// create makes the Secret with the bootstrap data.
func (r *Reconciler) create(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, c *bootstrapv1.KindredConfig) (*corev1.Secret, error) {
	if !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) || !cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil, waits{reason: bootstrapv1.WaitingForInfrastructureReason, message: "the cluster has no endpoint yet"}
	}
	data, err := r.data(ctx, cluster, machine, c)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Namespace: c.Namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
			OwnerReferences: []metav1.OwnerReference{ownerOf(c)},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": value, "format": []byte(bootstrapv1.Format)},
	}
	if data.token != "" {
		s.Data[tokenKey] = []byte(data.token)
	}
	return s, r.Client.Create(ctx, s)
}

// data returns the bootstrap data by the role of the machine.
func (r *Reconciler) data(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, c *bootstrapv1.KindredConfig) (data, error) {
	files, err := filesOf(c.Spec)
	if err != nil {
		return data{}, err
	}
	flags, err := flagsOf(c.Spec)
	if err != nil {
		return data{}, err
	}
	flags = append([]string{"--node-name", machine.Name}, flags...)
	if isServer(c) {
		return r.server(ctx, cluster, c, files, flags)
	}
	return r.node(ctx, cluster, files, flags)
}

// server returns the bootstrap data of a server.
func (r *Reconciler) server(ctx context.Context, cluster *clusterv1.Cluster, c *bootstrapv1.KindredConfig, files []file, flags []string) (data, error) {
	authorities, err := r.authorities(ctx, cluster)
	if err != nil {
		return data{}, err
	}
	endpoint := cluster.Spec.ControlPlaneEndpoint
	args := []string{
		"up", "--server", "--etcd-embedded", "--authorities", authoritiesDir,
		"--secure-port", strconv.Itoa(int(endpoint.Port)), "--tls-san", endpoint.Host,
	}
	ranges, err := rangesOf(cluster)
	if err != nil {
		return data{}, err
	}
	args = append(args, ranges...)
	if c.Spec.Role == bootstrapv1.Server {
		member, err := r.member(ctx, cluster)
		if err != nil {
			return data{}, err
		}
		args = append(args, "--join-etcd", member)
	}
	return data{Args: append(args, flags...), Files: append(authorities, files...)}, nil
}

// member returns the URL of a member of the cluster's etcd.
func (r *Reconciler) member(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	servers, err := collections.GetFilteredMachinesForCluster(ctx, r.Client, cluster, collections.ControlPlaneMachines(cluster.Name), collections.ActiveMachines, collections.HasNode())
	if err != nil {
		return "", err
	}
	for _, machine := range servers.SortedByCreationTimestamp() {
		for _, a := range machine.Status.Addresses {
			if a.Type == clusterv1.MachineInternalIP {
				return "https://" + a.Address + ":2379", nil
			}
		}
	}
	return "", waits{reason: bootstrapv1.WaitingForServersReason, message: "no server of the cluster has an address yet", retry: true}
}

// authorities returns the files with the keys of the cluster, which KindredControlPlane has made.
func (r *Reconciler) authorities(ctx context.Context, cluster *clusterv1.Cluster) ([]file, error) {
	var files []file
	for _, a := range []struct {
		purpose secret.Purpose
		name    string
		keyOnly bool
	}{
		{purpose: secret.ClusterCA, name: "ca"},
		{purpose: secret.FrontProxyCA, name: "front-proxy-ca"},
		{purpose: secret.EtcdCA, name: "etcd-ca"},
		{purpose: secret.ServiceAccount, name: "sa", keyOnly: true},
	} {
		s := &corev1.Secret{}
		key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, a.purpose)}
		if err := r.Client.Get(ctx, key, s); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, waits{reason: bootstrapv1.WaitingForControlPlaneReason, message: "the Secret " + key.Name + " with keys of the cluster does not exist yet", retry: true}
			}
			return nil, err
		}
		files = append(files, file{Path: authoritiesDir + "/" + a.name + ".key", Mode: 0o600, Content: s.Data[secret.TLSKeyDataName]})
		if !a.keyOnly {
			files = append(files, file{Path: authoritiesDir + "/" + a.name + ".crt", Mode: 0o644, Content: s.Data[secret.TLSCrtDataName]})
		}
	}
	return files, nil
}
