// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// generator creates the claims that pods want from templates.
type generator struct {
	*maker
	// gangs is set if PodGroups are served. Pods share the claims of their group.
	gangs bool
}

func newGenerator(env control.Env, gangs bool) *generator {
	return &generator{newMaker(env, corev1.SchemeGroupVersion.WithKind("Pod")), gangs}
}

// Reconcile creates the missing claims of a pod and records their names. It reserves the claims for
// the pod if the pod has a node, in case that it did not get the node from the scheduler.
func (g *generator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if wants, err := g.read(ctx, req.NamespacedName, pod); err != nil || !wants {
		return ctrl.Result{}, err
	}
	group, err := g.groupOf(ctx, pod)
	if err != nil {
		// Its PodGroup wakes the pod.
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	generated := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, err := g.ensure(ctx, pod, group, wanted)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("pod %s: %w", req.NamespacedName, g.failed(pod, wanted.Name, err))
		}
		if name != "" {
			generated[wanted.Name] = name
		}
	}
	if len(generated) > 0 {
		return ctrl.Result{}, owned.IgnoreStale(g.recordNames(ctx, pod, generated))
	}
	// From here on, exists finds them by their recorded names.
	g.forget(req.NamespacedName)
	if pod.Spec.NodeName == "" {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, owned.IgnoreStale(g.reserve(ctx, pod, group))
}

// groupOf returns the PodGroup of a pod; nil if the pod is in none.
func (g *generator) groupOf(ctx context.Context, pod *corev1.Pod) (*schedulingv1beta1.PodGroup, error) {
	name := groupName(pod)
	if name == "" || !g.gangs {
		return nil, nil
	}
	group := &schedulingv1beta1.PodGroup{}
	return group, g.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, group, client.UnsafeDisableDeepCopy)
}

// ensure returns the name of a claim that was generated for a pod or its PodGroup and is not recorded in
// the pod's status; "" if there is nothing to record. It creates the claim of a pod if it does not
// exist.
func (g *generator) ensure(ctx context.Context, pod *corev1.Pod, group *schedulingv1beta1.PodGroup, wanted *corev1.PodResourceClaim) (string, error) {
	name, generated, err := resourceclaim.Name(pod, wanted)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", fmt.Errorf("checking for claim before creating it: %w", err)
	case name == nil || !generated:
		return "", nil
	default:
		key := client.ObjectKey{Namespace: pod.Namespace, Name: *name}
		belongs := func(claim *resourcev1.ResourceClaim) error { return resourceclaim.IsForPod(pod, claim, g.gangs) }
		if exists, err := g.exists(ctx, key, belongs); err != nil || exists {
			return "", err
		}
	}
	user, err := resourceclaim.BindTo(pod, group, wanted)
	if err != nil {
		return "", err
	}
	if user.UID == pod.UID {
		return g.make(ctx, pod, wanted.Name, *wanted.ResourceClaimTemplateName)
	}
	if shared := recordedClaim(group, wanted.Name); name == nil || shared != *name {
		return shared, nil
	}
	return "", nil
}

// recordNames adds names of claims to the status of a pod.
func (g *generator) recordNames(ctx context.Context, pod *corev1.Pod, names map[string]string) error {
	var statuses []corev1.PodResourceClaimStatus
	for i := range pod.Spec.ResourceClaims {
		wanted := pod.Spec.ResourceClaims[i].Name
		if name, found := names[wanted]; found {
			statuses = append(statuses, corev1.PodResourceClaimStatus{Name: wanted, ResourceClaimName: &name})
		}
	}
	if err := patchStatuses(ctx, g.client, pod.DeepCopy(), statuses); err != nil {
		return fmt.Errorf("update pod %s/%s ResourceClaimStatuses: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// patchStatuses adds entries to the resourceClaimStatuses of an object.
func patchStatuses(ctx context.Context, to client.Client, obj client.Object, statuses any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID()},
		"status":   map[string]any{"resourceClaimStatuses": statuses},
	})
	if err != nil {
		return err
	}
	return to.Status().Patch(ctx, obj, client.RawPatch(types.StrategicMergePatchType, patch))
}

// reserve adds a pod that has a node, or its PodGroup, as a user of the pod's allocated claims.
func (g *generator) reserve(ctx context.Context, pod *corev1.Pod, group *schedulingv1beta1.PodGroup) error {
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, generated, err := resourceclaim.Name(pod, wanted)
		if err != nil || name == nil {
			continue
		}
		claim := &resourcev1.ResourceClaim{}
		if err := g.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: *name}, claim); err != nil {
			return err
		}
		if generated {
			if err := resourceclaim.IsForPod(pod, claim, g.gangs); err != nil {
				return err
			}
		}
		if claim.Status.Allocation == nil || resourceclaim.IsReservedForPod(pod, claim, g.gangs) || isDone(pod) {
			continue
		}
		user, err := resourceclaim.BindTo(pod, group, wanted)
		if err != nil {
			return err
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, user)
		if err := g.client.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// groupName returns the name of a pod's PodGroup, or "".
func groupName(pod *corev1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return *group.PodGroupName
	}
	return ""
}
