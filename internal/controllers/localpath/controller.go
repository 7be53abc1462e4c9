// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
	"github.com/kindred-project/kindred/internal/localvolumes"
)

const (
	// Name is the controller's identity.
	Name = "local-path-provisioner"
	// Provisioner is the provisioner of its StorageClasses, and the source of its events.
	Provisioner = "kindred.dev/local-path"

	workers = 4
)

// Nodes are the nodes that the provisioner serves, besides those whose agents serve their disks.
type Nodes struct {
	// Real is the name of the node of this machine, with a directory of volumes, Root; "" for none.
	Real, Root string
	// Simulated is the label of simulated nodes, whose volumes have no directories; "" for none.
	Simulated string
}

// Add returns the function that registers the provisioner. It watches claims and volumes.
func Add(nodes Nodes) func(control.Env) error {
	return func(env control.Env) error {
		core, err := kubernetes.NewForConfig(env.Config)
		if err != nil {
			return err
		}
		p := newProvisioner(env, nodes, func(node string) localvolumes.Disk { return localvolumes.Remote(core.CoreV1().RESTClient(), node) })
		requests := handler.EnqueueRequestsFromMapFunc(requestsOfClaim)
		mine := predicate.NewPredicateFuncs(func(obj client.Object) bool {
			return obj.GetAnnotations()[volume.AnnDynamicallyProvisioned] == Provisioner
		})
		return ctrl.NewControllerManagedBy(env.Manager).
			Named(Name).
			WithOptions(env.Options(workers)).
			For(&corev1.PersistentVolume{}, builder.WithPredicates(mine)).
			Watches(&corev1.PersistentVolumeClaim{}, requests).
			Complete(p)
	}
}

// requestsOfClaim returns a request for a claim that waits for the provisioner, and one for the volume of
// a claim, which may have to be expanded.
func requestsOfClaim(_ context.Context, obj client.Object) []reconcile.Request {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	switch {
	case !ok:
		return nil
	case isWaiting(claim):
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(claim)}}
	case claim.Spec.VolumeName != "" && claim.Annotations[volume.AnnStorageProvisioner] == Provisioner:
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: claim.Spec.VolumeName}}}
	}
	return nil
}

type provisioner struct {
	client client.Client
	events record.EventRecorder
	nodes  Nodes
	// remote returns the disk of another machine's node.
	remote func(node string) localvolumes.Disk
	// swept has the names of nodes whose disks were swept.
	swept sync.Map
}

func newProvisioner(env control.Env, nodes Nodes, remote func(node string) localvolumes.Disk) *provisioner {
	return &provisioner{client: env.Client, events: env.Events, nodes: nodes, remote: remote}
}

// diskOf returns the disk of a node that is not simulated.
func (p *provisioner) diskOf(node string) localvolumes.Disk {
	if node == p.nodes.Real {
		return localvolumes.Directories{Root: p.nodes.Root}
	}
	return p.remote(node)
}

// Reconcile takes the next step for a claim or, if the request has no namespace, for a volume.
func (p *provisioner) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Namespace != "" {
		return ctrl.Result{}, owned.IgnoreStale(p.reconcileClaim(ctx, req))
	}
	v := &corev1.PersistentVolume{}
	if err := p.client.Get(ctx, req.NamespacedName, v); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if v.Annotations[volume.AnnDynamicallyProvisioned] != Provisioner {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, owned.IgnoreStale(p.reconcileVolume(ctx, v))
}

func (p *provisioner) reconcileClaim(ctx context.Context, req ctrl.Request) error {
	claim := &corev1.PersistentVolumeClaim{}
	if err := p.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !isWaiting(claim) || ownership.IsHeld(claim) {
		return nil
	}
	class := &storagev1.StorageClass{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: volume.GetPersistentVolumeClaimClass(claim)}, class); err != nil {
		return client.IgnoreNotFound(err) // The binder reports a class that is missing.
	}
	if err := check(claim, class); err != nil {
		p.failed(claim, class, err)
		return nil
	}
	node := &corev1.Node{}
	err := p.client.Get(ctx, client.ObjectKey{Name: claim.Annotations[volume.AnnSelectedNode]}, node)
	switch {
	case apierrors.IsNotFound(err):
		return p.reschedule(ctx, claim)
	case err != nil:
		return err
	}
	return p.provision(ctx, claim, class, node)
}

// provision makes the directory of a claim, then its volume. If the node has no room for the directory,
// the scheduler has to choose again.
func (p *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) error {
	wanted := localvolumes.Volume{
		Name: volumeName(claim), Size: claim.Spec.Resources.Requests.Storage().Value(),
		Block: claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock,
	}
	if p.simulates(node) {
		v := newVolume(claim, class, node, simulatedPath(wanted.Name))
		_, err := p.publish(ctx, claim, v)
		return err
	}
	if node.Name != p.nodes.Real && node.Annotations[localvolumes.Annotation] == "" {
		p.failed(claim, class, fmt.Errorf("node %s does not have volumes of this class", node.Name))
		return p.reschedule(ctx, claim)
	}
	disk := p.diskOf(node.Name)
	p.sweep(ctx, node.Name, disk)
	made, err := disk.Make(ctx, wanted)
	if err != nil {
		p.failed(claim, class, err)
		return p.reschedule(ctx, claim)
	}
	v := newVolume(claim, class, node, made.Path)
	isNew, err := p.publish(ctx, claim, v)
	if err != nil {
		return err
	}
	if err := disk.Keep(ctx, v.Name); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the mark of a new volume", "volume", v.Name)
	}
	if isNew && !made.Limited {
		p.events.Eventf(claim, corev1.EventTypeNormal, "CapacityNotEnforced",
			"volume %s is a directory and may grow beyond %s, as far as the disk of node %s allows", v.Name, v.Spec.Capacity.Storage(), node.Name)
	}
	return nil
}

// publish creates the PersistentVolume of a claim, unless it exists.
func (p *provisioner) publish(ctx context.Context, claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (isNew bool, err error) {
	if err := p.client.Create(ctx, v); err != nil {
		return false, client.IgnoreAlreadyExists(err)
	}
	p.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	return true, nil
}

func (p *provisioner) simulates(node *corev1.Node) bool {
	_, ok := node.Labels[p.nodes.Simulated]
	return ok && p.nodes.Simulated != ""
}

// reschedule asks the scheduler to choose another node for a claim.
func (p *provisioner) reschedule(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	delete(claim.Annotations, volume.AnnSelectedNode)
	return p.client.Update(ctx, claim)
}

func (p *provisioner) failed(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, err error) {
	p.events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume with StorageClass %q: %v", class.Name, err)
}

// sweep removes the directories that an earlier process made on a disk and did not use. It is done before this one makes the first one.
func (p *provisioner) sweep(ctx context.Context, node string, disk localvolumes.Disk) {
	if _, swept := p.swept.LoadOrStore(node, true); swept {
		return
	}
	exist, wanted, err := p.known(ctx)
	if err == nil {
		err = disk.Sweep(ctx, exist, wanted)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove unused directories of volumes", "node", node)
	}
}

// known returns the names of the volumes that exist, and of those that claims want.
func (p *provisioner) known(ctx context.Context) (exist, wanted []string, err error) {
	volumes, claims := &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}
	if err := p.client.List(ctx, volumes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	if err := p.client.List(ctx, claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	for i := range volumes.Items {
		exist = append(exist, volumes.Items[i].Name)
	}
	for i := range claims.Items {
		wanted = append(wanted, volumeName(&claims.Items[i]))
	}
	return exist, wanted, nil
}
