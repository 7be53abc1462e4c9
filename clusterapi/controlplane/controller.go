// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane is Cluster API's control plane provider Kindred: the servers of a cluster, whose embedded etcds are one cluster.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/owner"
)

const (
	// startPeriod is the interval of requests to the first server until it answers, and checkPeriod that of requests from then on.
	startPeriod = 200 * time.Millisecond
	checkPeriod = 15 * time.Second
	// renewBefore is the time before the end of the kubeconfig's certificate at which another one is issued.
	renewBefore = 180 * 24 * time.Hour
)

// Workload is what the controller does in a cluster.
type Workload interface {
	// Answers returns an error if the API of a cluster does not answer.
	Answers(ctx context.Context, cluster *clusterv1.Cluster) error
	// Leave removes the server at an address from the cluster, and its member from etcd. servers are the addresses of the others.
	Leave(ctx context.Context, cluster *clusterv1.Cluster, address string, servers []string) error
}

// Reconciler makes the servers of KindredControlPlanes.
type Reconciler struct {
	Client client.Client
	// Reader reads what the API has, where Client may read from a cache.
	Reader   client.Reader
	Workload Workload
	// Clock decides when a rollout is due, and how long a KindredControlPlane may be without a Cluster.
	Clock clock.PassiveClock
}

var kind = controlplanev1.GroupVersion.WithKind("KindredControlPlane")

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&controlplanev1.KindredControlPlane{}).
		Owns(&clusterv1.Machine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Complete(r)
}

// ofCluster returns the KindredControlPlane of a Cluster.
func ofCluster(_ context.Context, object client.Object) []ctrl.Request {
	cluster, ok := object.(*clusterv1.Cluster)
	if !ok || cluster.Spec.ControlPlaneRef.GroupKind() != kind.GroupKind() {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.ControlPlaneRef.Name}}}
}

// ofMachine returns the KindredControlPlane that a Machine's label names. A Machine that has lost its owner still has it.
func ofMachine(_ context.Context, m client.Object) []ctrl.Request {
	name := m.GetLabels()[clusterv1.MachineControlPlaneNameLabel]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: m.GetNamespace(), Name: name}}}
}

// scope is a control plane with its cluster and its machines.
type scope struct {
	*controlplanev1.KindredControlPlane
	cluster  *clusterv1.Cluster
	machines collections.Machines
	// outdated says for each machine that is not as described what is different.
	outdated map[string][]string
	// next is the decision of this reconciliation.
	next decision
	// silence is why the API does not answer; nil if it does.
	silence error
}

// Reconcile takes the next step towards the servers that a KindredControlPlane describes.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, failed error) {
	p := &controlplanev1.KindredControlPlane{}
	if err := r.Client.Get(ctx, request.NamespacedName, p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, p.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil {
		return owner.Await(ctx, r.Client, r.Clock.Now(), p, clusterv1.AvailableCondition, "Cluster")
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, p); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(p, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	s := &scope{KindredControlPlane: p, cluster: cluster}
	defer func() {
		s.report()
		err := helper.Patch(ctx, p, patch.WithStatusObservedGeneration{}, patch.WithOwnedConditions{Conditions: owned})
		if p.DeletionTimestamp.IsZero() || !apierrors.IsNotFound(err) {
			failed = kerrors.NewAggregate([]error{failed, err})
		}
	}()
	if p.DeletionTimestamp.IsZero() && controllerutil.AddFinalizer(p, controlplanev1.Finalizer) {
		return ctrl.Result{}, nil // the patch causes the next request
	}
	var foreign collections.Machines
	if s.machines, foreign, err = s.existing(ctx, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, s)
	}
	if s.reportForeign(foreign); len(foreign) > 0 {
		return ctrl.Result{RequeueAfter: checkPeriod}, nil
	}
	if err := r.adopt(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return r.reconcile(ctx, s)
}

// remove deletes all machines at once: nothing of the cluster is left, so that no member needs to leave etcd.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	if len(s.machines) == 0 {
		controllerutil.RemoveFinalizer(s.KindredControlPlane, controlplanev1.Finalizer)
		return nil
	}
	var failed []error
	for _, m := range s.machines {
		failed = append(failed, r.unhook(ctx, m))
		if m.DeletionTimestamp.IsZero() {
			failed = append(failed, client.IgnoreNotFound(r.Client.Delete(ctx, m)))
		}
	}
	return kerrors.NewAggregate(failed)
}

// unhook lets a machine be removed from its host.
func (r *Reconciler) unhook(ctx context.Context, m *clusterv1.Machine) error {
	if _, hooked := m.Annotations[controlplanev1.LeaveHook]; !hooked {
		return nil
	}
	before := m.DeepCopy()
	delete(m.Annotations, controlplanev1.LeaveHook)
	return client.IgnoreNotFound(r.Client.Patch(ctx, m, client.MergeFrom(before)))
}

// reconcile takes the next step.
func (r *Reconciler) reconcile(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.ownTemplate(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) || !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		s.next = decision{step: wait, message: "the cluster has no endpoint yet"}
		return ctrl.Result{}, nil
	}
	if err := r.ensureCertificates(ctx, s); err != nil {
		set(s, controlplanev1.CertificatesAvailableCondition, metav1.ConditionFalse, "CertificatesFailed", err.Error())
		return ctrl.Result{}, err
	}
	set(s, controlplanev1.CertificatesAvailableCondition, metav1.ConditionTrue, "CertificatesAvailable", "")
	if len(s.machines) > 0 {
		if s.silence = r.Workload.Answers(ctx, s.cluster); s.silence == nil {
			s.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		}
	}
	if err := r.judge(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.leave(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	s.next = decide(s.servers(), int(ptr.Deref(s.Spec.Replicas, 1)), s.initialized())
	if err := r.take(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if !s.initialized() {
		return ctrl.Result{RequeueAfter: startPeriod}, nil
	}
	return ctrl.Result{RequeueAfter: checkPeriod}, nil
}

func (s *scope) initialized() bool {
	return ptr.Deref(s.Status.Initialization.ControlPlaneInitialized, false)
}

// servers returns what the decision needs to know about the machines.
func (s *scope) servers() []server {
	var all []server
	for _, m := range s.machines {
		all = append(all, server{
			name: m.Name, created: m.CreationTimestamp.Time, upToDate: len(s.outdated[m.Name]) == 0,
			healthy:   m.Status.NodeRef.IsDefined() && conditions.IsTrue(m, clusterv1.MachineNodeHealthyCondition),
			deleting:  !m.DeletionTimestamp.IsZero(),
			unhealthy: collections.IsUnhealthyAndOwnerRemediated(m),
		})
	}
	return all
}

// take takes the step that was decided.
func (r *Reconciler) take(ctx context.Context, s *scope) error {
	switch s.next.step {
	case begin, add:
		if current, err := r.isCurrent(ctx, s); err != nil || !current {
			return err // the event of the other machine causes the next request
		}
		return r.create(ctx, s, s.next.step == begin)
	case remove:
		ctrl.LoggerFrom(ctx).Info("Deleting a machine of the control plane", "machine", s.next.machine, "why", s.next.message)
		return client.IgnoreNotFound(r.Client.Delete(ctx, s.machines[s.next.machine]))
	}
	return nil
}

// isCurrent reports whether the decision knows all machines. The cache may lag behind a creation, and a second first server would be another cluster.
func (r *Reconciler) isCurrent(ctx context.Context, s *scope) (bool, error) {
	all, foreign, err := s.existing(ctx, r.Reader)
	if err != nil || len(foreign) > 0 {
		return false, err
	}
	for name := range all {
		if s.machines[name] == nil {
			return false, nil
		}
	}
	return true, nil
}

// leave removes the servers from etcd whose machines are about to be removed from the host.
func (r *Reconciler) leave(ctx context.Context, s *scope) error {
	var failed []error
	for _, m := range s.machines {
		_, hooked := m.Annotations[controlplanev1.LeaveHook]
		if m.DeletionTimestamp.IsZero() || !hooked || conditions.GetReason(m, clusterv1.MachineDeletingCondition) != clusterv1.MachineDeletingWaitingForPreTerminateHookReason {
			continue
		}
		if own := addressOf(m); own != "" && len(s.machines) > 1 {
			if err := r.Workload.Leave(ctx, s.cluster, own, s.others(m)); err != nil {
				failed = append(failed, fmt.Errorf("machine %s cannot leave the cluster: %w", m.Name, err))
				continue
			}
		}
		failed = append(failed, r.unhook(ctx, m))
	}
	return kerrors.NewAggregate(failed)
}

// others returns the addresses of the machines that stay when one leaves.
func (s *scope) others(leaving *clusterv1.Machine) []string {
	var all []string
	for _, m := range s.machines {
		if address := addressOf(m); address != "" && m.Name != leaving.Name && m.DeletionTimestamp.IsZero() {
			all = append(all, address)
		}
	}
	return all
}

func addressOf(m *clusterv1.Machine) string {
	for _, a := range m.Status.Addresses {
		if a.Type == clusterv1.MachineInternalIP {
			return a.Address
		}
	}
	return ""
}

// ensureCertificates makes the authorities of the cluster unless they exist, and the kubeconfig. They are owned by the control plane, also
// if they were moved or restored without their owner.
func (r *Reconciler) ensureCertificates(ctx context.Context, s *scope) error {
	owner := *metav1.NewControllerRef(s.KindredControlPlane, kind)
	key := client.ObjectKeyFromObject(s.cluster)
	// Kindred's keys are ECDSA.
	certificates := secret.NewCertificatesForInitialControlPlane(&kubeadmv1.ClusterConfiguration{EncryptionAlgorithm: kubeadmv1.EncryptionAlgorithmECDSAP256})
	if err := certificates.LookupOrGenerate(ctx, r.Client, key, owner); err != nil {
		return err
	}
	for _, c := range certificates {
		if err := checkKey(c); err != nil {
			return err
		}
		if err := r.own(ctx, c.Secret, owner); err != nil {
			return err
		}
	}
	existing := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: secret.Name(key.Name, secret.Kubeconfig)}, existing)
	algorithm := kubeconfig.KeyEncryptionAlgorithm(kubeadmv1.EncryptionAlgorithmECDSAP256)
	if apierrors.IsNotFound(err) {
		return kubeconfig.CreateSecretWithOwner(ctx, r.Client, key, s.cluster.Spec.ControlPlaneEndpoint.String(), owner, algorithm)
	}
	if err != nil {
		return err
	}
	if err := r.own(ctx, existing, owner); err != nil {
		return err
	}
	if renew, err := kubeconfig.NeedsClientCertRotation(existing, renewBefore); err != nil || !renew {
		return err
	}
	return kubeconfig.RegenerateSecret(ctx, r.Client, existing, algorithm)
}

// checkKey refuses a user's key that Kindred cannot use.
func checkKey(c *secret.Certificate) error {
	key, err := certs.DecodePrivateKeyPEM(c.KeyPair.Key)
	if err != nil {
		return fmt.Errorf("the key in the Secret %s: %w", c.Secret.Name, err)
	}
	if _, ok := key.(*ecdsa.PrivateKey); !ok {
		return fmt.Errorf("the key in the Secret %s is a %T, and Kindred needs an ECDSA key", c.Secret.Name, key)
	}
	return nil
}

// own makes the control plane the controller of a Secret, unless the Secret is a user's: those have another type.
func (r *Reconciler) own(ctx context.Context, s *corev1.Secret, owner metav1.OwnerReference) error {
	if s.Type != clusterv1.ClusterSecretType {
		return nil
	}
	return r.control(ctx, s, owner)
}
