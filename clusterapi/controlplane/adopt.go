// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
)

// existing returns the machines of the cluster's control plane that a reader has: those of this KindredControlPlane, and those that something
// else manages.
func (s *scope) existing(ctx context.Context, reader client.Reader) (own, foreign collections.Machines, err error) {
	all, err := collections.GetFilteredMachinesForCluster(ctx, reader, s.cluster,
		collections.Or(collections.ControlPlaneMachines(s.cluster.Name), collections.OwnedMachines(s.KindredControlPlane, kind.GroupKind())))
	if err != nil {
		return nil, nil, err
	}
	own = all.Filter(s.isOwn)
	return own, all.Difference(own), nil
}

// isOwn reports whether a machine is one of this control plane: it names it as an owner, or it has lost its controller and is a Kindred server.
func (s *scope) isOwn(m *clusterv1.Machine) bool {
	if util.IsOwnedByObject(m, s.KindredControlPlane, kind.GroupKind()) {
		return true
	}
	config := m.Spec.Bootstrap.ConfigRef
	return metav1.GetControllerOf(m) == nil && config.APIGroup == bootstrapv1.GroupVersion.Group && config.Kind == "KindredConfig"
}

// adopt makes the control plane the controller of those of its machines that have lost it, or that name another version or UID of it: a
// backup may restore objects without their owners.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	owner := *metav1.NewControllerRef(s.KindredControlPlane, kind)
	lost := s.machines.Filter(func(m *clusterv1.Machine) bool { return !util.HasExactOwnerRef(m.OwnerReferences, owner) })
	if len(lost) == 0 {
		return nil
	}
	// The cache may not know yet that the control plane is deleted, in which case the garbage collector may have taken it from the machines.
	now := &controlplanev1.KindredControlPlane{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.KindredControlPlane), now); err != nil {
		return err
	}
	if now.UID != s.UID || !now.DeletionTimestamp.IsZero() {
		return fmt.Errorf("%d machines are not taken back: the control plane was deleted", len(lost))
	}
	for _, m := range lost {
		ctrl.LoggerFrom(ctx).Info("Taking back a machine that had lost its control plane", "machine", m.Name)
		if err := r.control(ctx, m, owner); err != nil {
			return fmt.Errorf("machine %s cannot be taken back: %w", m.Name, err)
		}
	}
	return nil
}

// control makes the control plane the controller of an object, in place of itself in another version or elsewhere.
func (r *Reconciler) control(ctx context.Context, object client.Object, owner metav1.OwnerReference) error {
	if util.HasExactOwnerRef(object.GetOwnerReferences(), owner) {
		return nil
	}
	before := object.DeepCopyObject().(client.Object)
	object.SetOwnerReferences(util.EnsureOwnerRef(withoutControlPlanes(object.GetOwnerReferences()), owner))
	return r.Client.Patch(ctx, object, client.MergeFrom(before))
}

// withoutControlPlanes removes references to control planes: to one that the object had elsewhere, or to this one in another version.
func withoutControlPlanes(owners []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(owners), func(o metav1.OwnerReference) bool { return o.Kind == kind.Kind })
}

// reportForeign sets a condition while something else manages machines of the control plane.
func (s *scope) reportForeign(foreign collections.Machines) {
	if len(foreign) == 0 {
		conditions.Delete(s.KindredControlPlane, controlplanev1.MachinesOwnedCondition)
		return
	}
	names := foreign.Names()
	slices.Sort(names)
	set(s, controlplanev1.MachinesOwnedCondition, metav1.ConditionFalse, "ForeignMachines", fmt.Sprintf("nothing is changed while the control plane of the cluster "+
		"has machines of something else: delete %s, or remove the label %s", strings.Join(names, ", "), clusterv1.MachineControlPlaneLabel))
}

// ownTemplate makes the Cluster an owner of the template of the machines, by which it is moved and deleted with the Cluster.
func (r *Reconciler) ownTemplate(ctx context.Context, s *scope) error {
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, s.Spec.MachineTemplate.Spec.InfrastructureRef, s.Namespace)
	if apierrors.IsNotFound(err) {
		return nil // the next machine needs it, not those that exist
	}
	if err != nil {
		return fmt.Errorf("the template of the machines: %w", err)
	}
	owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID}
	if util.HasExactOwnerRef(template.GetOwnerReferences(), owner) {
		return nil
	}
	before := template.DeepCopy()
	template.SetOwnerReferences(util.EnsureOwnerRef(template.GetOwnerReferences(), owner))
	if err := r.Client.Patch(ctx, template, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("the owner of the template of the machines: %w", err)
	}
	return nil
}
