// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons of the events that Control records for the owner. FailedCreate and FailedDelete
// are also reasons of the ReplicaFailure condition.
const (
	FailedCreate     = "FailedCreate"
	SuccessfulCreate = "SuccessfulCreate"
	FailedDelete     = "FailedDelete"
	SuccessfulDelete = "SuccessfulDelete"
)

// FromTemplate returns a pod with the content of a template, named after its owner and
// controlled by it.
func FromTemplate(template *corev1.PodTemplateSpec, owner client.Object, kind schema.GroupVersionKind) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// Control creates and deletes pods for an owner, and records events for it.
type Control struct {
	Client client.Client
	Events record.EventRecorder
}

// Create creates the pod, and sets it to the object that the API returns.
func (c Control) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	// No selector would match the pod, so its owner would create pods without end.
	if len(pod.Labels) == 0 {
		return errors.New("unable to create pods, no labels")
	}
	if err := c.Client.Create(ctx, pod); err != nil {
		// Creation always fails in a terminating namespace.
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Events.Eventf(owner, corev1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
		}
		return err
	}
	c.Events.Eventf(owner, corev1.EventTypeNormal, SuccessfulCreate, "Created pod: %v", pod.Name)
	return nil
}

// Delete deletes the pod, but not another pod of its name. It returns no error if the pod
// does not exist.
func (c Control) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := c.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.Events.Eventf(owner, corev1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	c.Events.Eventf(owner, corev1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
	return nil
}
