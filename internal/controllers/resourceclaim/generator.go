// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// generator creates the claims that pods want from templates.
type generator struct {
	client client.Client
	live   client.Reader
	events record.EventRecorder

	// created has the names of claims that were created for pods, until the status of the pods has
	// them. The names are generated, so that creating a claim twice would not fail.
	mu      sync.Mutex
	created map[types.NamespacedName]created
}

// created has the names of the claims of one pod.
type created struct {
	pod   types.UID
	names map[string]string
}

func newGenerator(env control.Env) *generator {
	return &generator{client: env.Client, live: env.Live, events: env.Events, created: map[types.NamespacedName]created{}}
}

// podsWith returns the pods that an index finds by the name of an object.
func (g *generator) podsWith(ctx context.Context, field string, obj client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	err := g.client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{field: obj.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // cannot happen: the index exists
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if wantsClaims(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile creates the missing claims of a pod and records their names. It reserves the claims for
// the pod if the pod has a node, in case that it did not get the node from the scheduler.
func (g *generator) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := g.client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		g.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil || ownership.IsHeld(pod) {
		return ctrl.Result{}, nil
	}
	generated := map[string]string{}
	for i := range pod.Spec.ResourceClaims {
		wanted := &pod.Spec.ResourceClaims[i]
		name, err := g.ensure(ctx, pod, wanted)
		if err != nil {
			g.events.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", fmt.Sprintf("PodResourceClaim %s: %v", wanted.Name, err))
			return ctrl.Result{}, fmt.Errorf("pod %s, PodResourceClaim %s: %w", req.NamespacedName, wanted.Name, err)
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
	return ctrl.Result{}, owned.IgnoreStale(g.reserve(ctx, pod))
}

// ensure returns the name of a claim that was generated for a pod and is not recorded in its status,
// and creates the claim if it does not exist; "" if there is nothing to record.
func (g *generator) ensure(ctx context.Context, pod *corev1.Pod, wanted *corev1.PodResourceClaim) (string, error) {
	name, generated, err := resourceclaim.Name(pod, wanted)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", fmt.Errorf("checking for claim before creating it: %w", err)
	case name == nil || !generated:
		return "", nil
	default:
		if exists, err := g.exists(ctx, pod, *name); err != nil || exists {
			return "", err
		}
	}
	if name := g.find(ctx, pod, wanted.Name); name != "" {
		return name, nil
	}
	template := &resourcev1.ResourceClaimTemplate{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: *wanted.ResourceClaimTemplateName}
	if err := g.client.Get(ctx, key, template, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", key.Name, err)
	}
	claim := newClaim(pod, wanted, template)
	if err := g.client.Create(ctx, claim); err != nil {
		return "", fmt.Errorf("create ResourceClaim %s: %w", claim.Name, err)
	}
	g.remember(pod, wanted.Name, claim.Name)
	return claim.Name, nil
}

// exists reports whether a claim whose name is recorded in a pod's status exists and is the pod's.
func (g *generator) exists(ctx context.Context, pod *corev1.Pod, name string) (bool, error) {
	claim := &resourcev1.ResourceClaim{}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: name}
	err := g.client.Get(ctx, key, claim, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = g.live.Get(ctx, key, claim)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && resourceclaim.IsForPod(pod, claim, false) == nil, err
}

// find returns the name of a claim that was created for a pod before; "" if there is none.
func (g *generator) find(ctx context.Context, pod *corev1.Pod, wanted string) string {
	list := &resourcev1.ResourceClaimList{}
	of := client.MatchingFields{owned.ControllerIndex: string(pod.UID)}
	if err := g.client.List(ctx, list, client.InNamespace(pod.Namespace), of, client.UnsafeDisableDeepCopy); err != nil {
		return "" // cannot happen: the index exists
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Annotations[resourcev1.PodResourceClaimAnnotation] == wanted && claim.DeletionTimestamp == nil {
			return claim.Name
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.created[client.ObjectKeyFromObject(pod)]; c.pod == pod.UID {
		return c.names[wanted]
	}
	return ""
}

func (g *generator) remember(pod *corev1.Pod, wanted, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	if g.created[key].pod != pod.UID {
		g.created[key] = created{pod.UID, map[string]string{}}
	}
	g.created[key].names[wanted] = name
}

func (g *generator) forget(pod types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.created, pod)
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
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"resourceClaimStatuses": statuses},
	})
	if err != nil {
		return err
	}
	err = g.client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	if err != nil {
		return fmt.Errorf("update pod %s/%s ResourceClaimStatuses: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// reserve adds a pod that has a node as a user of its allocated claims.
func (g *generator) reserve(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.ResourceClaims {
		name, generated, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim := &resourcev1.ResourceClaim{}
		if err := g.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: *name}, claim); err != nil {
			return err
		}
		if generated {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return err
			}
		}
		if claim.Status.Allocation == nil || resourceclaim.IsReservedForPod(pod, claim, false) || isDone(pod) {
			continue
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod.Name, UID: pod.UID,
		})
		if err := g.client.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// newClaim returns a claim that is made from a template. It is deleted with the pod.
func newClaim(pod *corev1.Pod, wanted *corev1.PodResourceClaim, template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	from := template.Spec.DeepCopy()
	annotations := map[string]string{}
	maps.Copy(annotations, from.Annotations)
	annotations[resourcev1.PodResourceClaimAnnotation] = wanted.Name
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: baseName(pod.Name, wanted.Name),
			Labels: from.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
		},
		Spec: from.Spec,
	}
}

// baseName returns the base of a generated name. If it is too long, both parts are shortened in
// proportion, so that both can be recognized.
func baseName(pod, claim string) string {
	const most = 57 // leaves room for the generated suffix in 63 characters
	base := pod + "-" + claim + "-"
	if length := len(base); length > most {
		return pod[:len(pod)*most/length] + "-" + claim[:len(claim)*most/length]
	}
	return base
}
