// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package infrastructure is Cluster API's infrastructure provider Kindred: its machines are namespaces of the host.
package infrastructure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	infrav1 "github.com/kindred-project/kindred/clusterapi/api/infrastructure/v1alpha1"
	"github.com/kindred-project/kindred/clusterapi/hostclient"
	"github.com/kindred-project/kindred/clusterapi/owner"
)

// checkPeriod is the interval at which the host is asked about a machine. There are no events when one is killed.
const checkPeriod = 10 * time.Second

// concurrentMachines limits the machines that are made at a time. The host makes one after another; the rest is waiting.
const concurrentMachines = 5

// Host makes machines and endpoints. It is implemented by hostclient.Host.
type Host interface {
	ProgramOf(version string) (path string, found bool, err error)
	Versions() ([]string, error)
	Apply(ctx context.Context, spec hostclient.Spec) (hostclient.Machine, error)
	Get(ctx context.Context, name string) (hostclient.Machine, bool, error)
	Delete(ctx context.Context, name string) error
	SetEndpoint(ctx context.Context, e hostclient.Endpoint) (hostclient.Endpoint, error)
	DeleteEndpoint(ctx context.Context, name string) error
}

// MachineReconciler makes the machines of KindredMachines.
type MachineReconciler struct {
	Client client.Client
	Host   Host
	// Owner identifies this management cluster on the host: the hash of its authority's key.
	Owner string
	Clock clock.PassiveClock
}

// SetupWithManager registers the controller.
func (r *MachineReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	infraMachine := infrav1.GroupVersion.WithKind("KindredMachine")
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.KindredMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentMachines}).
		For(&infrav1.KindredMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(infraMachine))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Complete(r)
}

// Reconcile makes the machine of a KindredMachine, or removes it.
func (r *MachineReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, failed error) {
	m := &infrav1.KindredMachine{}
	if err := r.Client.Get(ctx, request.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, err := owner.Machine(ctx, r.Client, m)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if machine == nil {
		return owner.Await(ctx, r.Client, r.Clock.Now(), m, clusterv1.ReadyCondition, "Machine")
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, machine.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return owner.Await(ctx, r.Client, r.Clock.Now(), m, clusterv1.ReadyCondition, "Cluster")
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, requeue, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, m); err != nil || isPaused || requeue {
		return ctrl.Result{}, err
	}
	helper, err := patch.NewHelper(m, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		err := helper.Patch(ctx, m, patch.WithOwnedConditions{Conditions: []string{clusterv1.ReadyCondition}})
		if m.DeletionTimestamp.IsZero() || !apierrors.IsNotFound(err) {
			failed = kerrors.NewAggregate([]error{failed, err})
		}
	}()
	if !m.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, m)
	}
	if controllerutil.AddFinalizer(m, infrav1.MachineFinalizer) {
		return ctrl.Result{}, nil // the patch causes the next request
	}
	return r.provision(ctx, cluster, machine, m)
}

// remove removes the machine of a KindredMachine that is deleted.
func (r *MachineReconciler) remove(ctx context.Context, m *infrav1.KindredMachine) error {
	if name, made := nameOnHost(m); made {
		if err := r.Host.Delete(ctx, name); err != nil {
			notReady(m, infrav1.HostReason, err.Error())
			return err
		}
	}
	controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer)
	return nil
}

// provision makes the machine, and keeps watch over it.
func (r *MachineReconciler) provision(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine, m *infrav1.KindredMachine) (ctrl.Result, error) {
	if !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
		notReady(m, infrav1.WaitingForClusterReason, "the cluster has no endpoint yet")
		return ctrl.Result{}, nil
	}
	if machine.Spec.Bootstrap.DataSecretName == nil {
		notReady(m, infrav1.WaitingForBootstrapDataReason, "the bootstrap configuration of the machine is not known yet")
		return ctrl.Result{}, nil
	}
	if m.Spec.ProviderID == "" {
		// It is stored before the machine is made, so that the machine is found again: by this controller after a crash, and by that
		// of another cluster after a move.
		m.Spec.ProviderID = infrav1.ProviderIDPrefix + chooseName(m)
		return ctrl.Result{}, nil
	}
	spec, refused, err := r.spec(ctx, machine, m)
	if refused.reason != "" {
		notReady(m, refused.reason, refused.message)
		return ctrl.Result{RequeueAfter: checkPeriod}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	onHost, gone, err := r.ensure(ctx, spec, m)
	switch {
	case err != nil:
		notReady(m, infrav1.HostReason, err.Error())
		return ctrl.Result{}, err
	case gone:
		notReady(m, infrav1.GoneReason, fmt.Sprintf("the host has no machine %s any more, and its data with it", spec.Name))
		return ctrl.Result{}, nil
	}
	return r.report(m, onHost)
}

// ensure makes the machine unless it was made before: one that has disappeared is not replaced by an empty one. One that ran before
// the host was started again is started, and one that was moved here gets its owner.
func (r *MachineReconciler) ensure(ctx context.Context, spec hostclient.Spec, m *infrav1.KindredMachine) (onHost hostclient.Machine, gone bool, err error) {
	if wasMade(m) {
		onHost, found, err := r.Host.Get(ctx, spec.Name)
		if err != nil || !found {
			return onHost, err == nil, err
		}
		if onHost.Phase == hostclient.Running && onHost.Owner == spec.Owner {
			return onHost, false, nil
		}
	}
	onHost, err = r.Host.Apply(ctx, spec)
	return onHost, false, err
}

// wasMade reports whether the machine was made before. A KindredMachine that was moved here or restored has no status, and the provider ID that
// another object had with another UID.
func wasMade(m *infrav1.KindredMachine) bool {
	name, chosen := nameOnHost(m)
	return ptr.Deref(m.Status.Initialization.Provisioned, false) || chosen && name != chooseName(m)
}

// report sets the status by what the host says about the machine.
func (r *MachineReconciler) report(m *infrav1.KindredMachine, onHost hostclient.Machine) (ctrl.Result, error) {
	address, err := netip.ParsePrefix(onHost.Address)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("address of machine %s: %w", onHost.Name, err)
	}
	m.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineHostName, Address: onHost.Name},
		{Type: clusterv1.MachineInternalIP, Address: address.Addr().String()},
	}
	m.Status.Initialization.Provisioned = ptr.To(true)
	if onHost.Phase != hostclient.Running {
		notReady(m, infrav1.DeadReason, fmt.Sprintf("machine %s is dead: its first process was killed, or ended", onHost.Name))
		return ctrl.Result{}, nil
	}
	if onHost.Ends.Count >= restless {
		notReady(m, infrav1.KindredEndsReason, fmt.Sprintf("Kindred in machine %s has ended %d times, the last time with %q; its log on the host, in the directory of the machine, says why",
			onHost.Name, onHost.Ends.Count, onHost.Ends.Last))
		return ctrl.Result{RequeueAfter: checkPeriod}, nil
	}
	conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.RunningReason})
	return ctrl.Result{RequeueAfter: checkPeriod}, nil
}

// restless is the number of ends of Kindred, each soon after its start, from which a machine is not ready. A single one is mended by the next start.
const restless = 3

func notReady(m conditions.Setter, reason, message string) {
	conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}

// refusal is why a machine cannot be made until something else changes.
type refusal struct{ reason, message string }

// bootstrapData is what a KindredConfig hands over.
type bootstrapData struct {
	Args  []string          `json:"args"`
	Files []hostclient.File `json:"files,omitempty"`
}

// spec returns what the host makes the machine from.
func (r *MachineReconciler) spec(ctx context.Context, machine *clusterv1.Machine, m *infrav1.KindredMachine) (hostclient.Spec, refusal, error) {
	name, ok := nameOnHost(m)
	if !ok {
		return hostclient.Spec{}, refusal{infrav1.HostReason, fmt.Sprintf("the provider ID %q does not begin with %s", m.Spec.ProviderID, infrav1.ProviderIDPrefix)}, nil
	}
	data, refused, err := r.bootstrapData(ctx, machine)
	if err != nil || refused.reason != "" {
		return hostclient.Spec{}, refused, err
	}
	program, refused, err := r.program(machine.Spec.Version)
	if err != nil || refused.reason != "" {
		return hostclient.Spec{}, refused, err
	}
	kubelet := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nproviderID: %s\n", m.Spec.ProviderID)
	spec := hostclient.Spec{
		Name: name, Owner: r.Owner, Program: program,
		Args:  append(data.Args, "--kubelet-config-dir", kubeletConfigDir),
		Files: append(data.Files, hostclient.File{Path: kubeletConfigDir + "/90-provider-id.conf", Mode: 0o644, Content: []byte(kubelet)}),
	}
	if m.Spec.Memory != nil {
		spec.Memory = m.Spec.Memory.Value()
	}
	return spec, refusal{}, nil
}

// kubeletConfigDir is the directory of a machine with the configuration of its agent. KindredConfigs write to it as well.
const kubeletConfigDir = "/etc/kindred/kubelet.conf.d"

func (r *MachineReconciler) bootstrapData(ctx context.Context, machine *clusterv1.Machine) (data bootstrapData, refused refusal, err error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}
	if err := r.Client.Get(ctx, key, secret); err != nil {
		return data, refused, fmt.Errorf("the bootstrap data: %w", err)
	}
	if format := string(secret.Data["format"]); format != bootstrapv1.Format {
		return data, refusal{infrav1.BootstrapFormatReason, fmt.Sprintf("the bootstrap data are in the format %q, and a KindredMachine needs those of a KindredConfig (%q)", format, bootstrapv1.Format)}, nil
	}
	if err := json.Unmarshal(secret.Data["value"], &data); err != nil {
		return data, refusal{infrav1.BootstrapFormatReason, fmt.Sprintf("the bootstrap data cannot be read: %v", err)}, nil
	}
	return data, refused, nil
}

// program returns the program of a version.
func (r *MachineReconciler) program(version string) (path string, refused refusal, err error) {
	path, found, err := r.Host.ProgramOf(version)
	if err != nil || found {
		return path, refused, err
	}
	versions, err := r.Host.Versions()
	if err != nil {
		return path, refused, err
	}
	slices.Sort(versions)
	return path, refusal{infrav1.NotInstalledReason, fmt.Sprintf("the host has no Kindred of version %q at %s; it has %s", version, path, strings.Join(versions, ", "))}, nil
}

// nameOnHost returns the name of the machine on the host. It reports whether the machine may have been made.
func nameOnHost(m *infrav1.KindredMachine) (string, bool) {
	return strings.CutPrefix(m.Spec.ProviderID, infrav1.ProviderIDPrefix)
}

// maxName is the length of a DNS label.
const maxName = 63

// chooseName returns the name of a machine on the host: that of the KindredMachine, which need not be unique there, and part of its UID. It is
// a DNS label.
func chooseName(object client.Object) string {
	sum := sha256.Sum256([]byte(object.GetUID()))
	suffix := "-" + hex.EncodeToString(sum[:4])
	name := strings.ReplaceAll(object.GetName(), ".", "-")
	if len(name) > maxName-len(suffix) {
		name = strings.TrimRight(name[:maxName-len(suffix)], "-")
	}
	return name + suffix
}
