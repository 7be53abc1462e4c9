// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/storage/names"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/kindred-project/kindred/clusterapi/api/bootstrap/v1alpha1"
	controlplanev1 "github.com/kindred-project/kindred/clusterapi/api/controlplane/v1alpha1"
)

// create makes a machine, with its configuration and infrastructure. What was made is deleted if the rest fails; until the Machine owns
// them, the control plane does.
func (r *Reconciler) create(ctx context.Context, s *scope, first bool) (failed error) {
	name := names.SimpleNameGenerator.GenerateName(s.Name + "-")
	var made []client.Object
	defer func() {
		// If the answer to its creation was lost, the Machine may exist, and needs them.
		if failed == nil || !apierrors.IsNotFound(r.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &clusterv1.Machine{})) {
			return
		}
		for _, object := range made {
			failed = kerrors.NewAggregate([]error{failed, client.IgnoreNotFound(r.Client.Delete(ctx, object))})
		}
	}()
	infrastructure, err := r.infrastructure(ctx, s, name)
	if err != nil {
		return fmt.Errorf("the infrastructure of a machine: %w", err)
	}
	if err := r.Client.Create(ctx, infrastructure); err != nil {
		return fmt.Errorf("the infrastructure of a machine: %w", err)
	}
	made = append(made, infrastructure)
	config := s.config(name, first)
	if err := r.Client.Create(ctx, config); err != nil {
		return fmt.Errorf("the configuration of a machine: %w", err)
	}
	made = append(made, config)
	machine := s.machine(name, infrastructure)
	if err := r.Client.Create(ctx, machine); err != nil {
		return err
	}
	r.handOver(ctx, machine, infrastructure, config)
	return nil
}

// handOver makes a Machine the owner of its parts, for which their providers wait. Cluster API does the same a second later, so that a failure is no
// error.
func (r *Reconciler) handOver(ctx context.Context, m *clusterv1.Machine, parts ...client.Object) {
	for _, part := range parts {
		before := part.DeepCopyObject().(client.Object)
		part.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))})
		if err := r.Client.Patch(ctx, part, client.MergeFrom(before)); err != nil {
			ctrl.LoggerFrom(ctx).Info("Cluster API will make the Machine the owner of its part", "machine", m.Name, "part", part.GetName(), "why", err.Error())
		}
	}
}

// labels are those of a machine and its parts.
func (s *scope) labels() map[string]string {
	labels := maps.Clone(s.Spec.MachineTemplate.ObjectMeta.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[clusterv1.ClusterNameLabel] = s.cluster.Name
	labels[clusterv1.MachineControlPlaneLabel] = ""
	labels[clusterv1.MachineControlPlaneNameLabel] = s.Name
	return labels
}

func (s *scope) ownerRef() *metav1.OwnerReference {
	ref := metav1.NewControllerRef(s.KindredControlPlane, kind)
	ref.Controller, ref.BlockOwnerDeletion = nil, nil // the Machine becomes the controller
	return ref
}

// infrastructure returns the infrastructure of a machine, from its template.
func (r *Reconciler) infrastructure(ctx context.Context, s *scope, name string) (*unstructured.Unstructured, error) {
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, s.Spec.MachineTemplate.Spec.InfrastructureRef, s.Namespace)
	if err != nil {
		return nil, err
	}
	return external.GenerateTemplate(&external.GenerateTemplateInput{
		Template:    template,
		TemplateRef: &corev1.ObjectReference{APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Namespace: s.Namespace, Name: template.GetName()},
		Namespace:   s.Namespace, Name: name, ClusterName: s.cluster.Name, OwnerRef: s.ownerRef(),
		Labels: s.labels(), Annotations: s.Spec.MachineTemplate.ObjectMeta.Annotations,
	})
}

// config returns the configuration of a machine.
func (s *scope) config(name string, first bool) *bootstrapv1.KindredConfig {
	spec := *s.Spec.KindredConfigSpec.DeepCopy()
	spec.Role = bootstrapv1.Server
	if first {
		spec.Role = bootstrapv1.FirstServer
	}
	return &bootstrapv1.KindredConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace, Labels: s.labels(), Annotations: s.Spec.MachineTemplate.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{*s.ownerRef()},
		},
		Spec: spec,
	}
}

// machine returns a Machine.
func (s *scope) machine(name string, infrastructure *unstructured.Unstructured) *clusterv1.Machine {
	m := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.KindredControlPlane, kind)},
			Annotations: map[string]string{controlplanev1.LeaveHook: ""},
			// Cluster API sets it otherwise, and comes back for the rest a second later.
			Finalizers: []string{clusterv1.MachineFinalizer},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: s.cluster.Name,
			Version:     version(s.Spec.Version),
			Bootstrap:   clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KindredConfig", Name: name}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrastructure.GroupVersionKind().Group, Kind: infrastructure.GetKind(), Name: infrastructure.GetName(),
			},
		},
	}
	s.inPlace(m)
	return m
}

// version returns a version with the v that Cluster API wants.
func version(v string) string {
	if strings.HasPrefix(v, "v") {
		return v
	}
	return "v" + v
}

// inPlace sets what of the template is propagated to machines that exist.
func (s *scope) inPlace(m *clusterv1.Machine) {
	template := s.Spec.MachineTemplate
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	maps.Copy(m.Labels, s.labels())
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	maps.Copy(m.Annotations, template.ObjectMeta.Annotations)
	m.Spec.ReadinessGates, m.Spec.Taints = template.Spec.ReadinessGates, template.Spec.Taints
	m.Spec.Deletion.NodeDrainTimeoutSeconds = template.Spec.Deletion.NodeDrainTimeoutSeconds
	m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = template.Spec.Deletion.NodeVolumeDetachTimeoutSeconds
	if seconds := template.Spec.Deletion.NodeDeletionTimeoutSeconds; seconds != nil {
		m.Spec.Deletion.NodeDeletionTimeoutSeconds = seconds // Cluster API has a default
	}
}

// judge finds out which machines are as the control plane describes them, tells them so, and propagates what is changed in place.
func (r *Reconciler) judge(ctx context.Context, s *scope) error {
	s.outdated = map[string][]string{}
	var failed []error
	for _, m := range s.machines {
		why, err := r.differences(ctx, s, m)
		if err != nil {
			failed = append(failed, fmt.Errorf("machine %s: %w", m.Name, err))
			continue
		}
		s.outdated[m.Name] = why
		failed = append(failed, r.update(ctx, s, m, why))
	}
	return kerrors.NewAggregate(failed)
}

// update writes to a Machine whether it is up to date, and what is changed in place.
func (r *Reconciler) update(ctx context.Context, s *scope, m *clusterv1.Machine, why []string) error {
	if !m.DeletionTimestamp.IsZero() {
		return nil
	}
	helper, err := patch.NewHelper(m, r.Client)
	if err != nil {
		return err
	}
	s.inPlace(m)
	condition := metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineUpToDateReason}
	if len(why) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, clusterv1.MachineNotUpToDateReason, "* "+strings.Join(why, "\n* ")
	}
	conditions.Set(m, condition)
	return helper.Patch(ctx, m, patch.WithOwnedConditions{Conditions: []string{clusterv1.MachineUpToDateCondition}})
}

// differences returns what of a machine is not as the control plane describes it.
func (r *Reconciler) differences(ctx context.Context, s *scope, m *clusterv1.Machine) (why []string, err error) {
	if want := version(s.Spec.Version); m.Spec.Version != want {
		why = append(why, fmt.Sprintf("Version %s, %s required", m.Spec.Version, want))
	}
	if after := s.Spec.Rollout.After; !after.IsZero() && after.Time.Before(r.Clock.Now()) && m.CreationTimestamp.Before(&after) {
		why = append(why, "KindredControlPlane spec.rollout.after expired")
	}
	infrastructure, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, m.Spec.InfrastructureRef, m.Namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	ref := s.Spec.MachineTemplate.Spec.InfrastructureRef
	if err == nil && clonedFrom(infrastructure) != ref.Name+" "+ref.GroupKind().String() {
		why = append(why, fmt.Sprintf("%s is not from the template %s", m.Spec.InfrastructureRef.Kind, ref.Name))
	}
	config := &bootstrapv1.KindredConfig{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}, config)
	if err != nil {
		return why, client.IgnoreNotFound(err)
	}
	wanted := *s.Spec.KindredConfigSpec.DeepCopy()
	wanted.Role = config.Spec.Role // the first server becomes one of several
	if !equality.Semantic.DeepEqual(wanted, config.Spec) {
		why = append(why, "KindredConfig is not up-to-date")
	}
	return slices.Clip(why), nil
}

// clonedFrom returns the name and kind of the template that an object was made from.
func clonedFrom(object *unstructured.Unstructured) string {
	annotations := object.GetAnnotations()
	return annotations[clusterv1.TemplateClonedFromNameAnnotation] + " " + annotations[clusterv1.TemplateClonedFromGroupKindAnnotation]
}
