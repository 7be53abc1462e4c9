// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

// findings is the result of a pass over a namespace.
type findings struct {
	discovery, parsing error
	content            []error
	// remaining counts the remaining objects by resource, finalizers counts them by
	// finalizer.
	remaining  map[schema.GroupVersionResource]int
	finalizers map[string]int
}

func (f *findings) hasFailed() bool {
	return f.discovery != nil || f.parsing != nil || len(f.content) > 0
}

func (f *findings) isEmpty() bool { return len(f.remaining) == 0 }

// clear deletes the content of the namespace and returns what remains. It deletes only pods as
// long as there are any, and then everything else. endsBy is when the last pod should have
// ended.
func (r *reconciler) clear(ctx context.Context, namespace string, endsBy time.Time) *findings {
	found := &findings{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	var known []resource
	known, found.discovery, found.parsing = r.catalog.resources()
	rest := slices.DeleteFunc(slices.Clone(known), resource.isPods)
	podKinds := slices.DeleteFunc(slices.Clone(known), func(k resource) bool { return !k.isPods() })
	r.clearAll(ctx, namespace, podKinds, found, endsBy)
	if len(podKinds) > 0 && len(found.content) > 0 {
		found.content[0] = fmt.Errorf("failed to delete pods for namespace: %s, err: %w", namespace, found.content[0])
	}
	if !found.isEmpty() {
		return found
	}
	r.clearAll(ctx, namespace, rest, found, time.Time{})
	return found
}

// clearAll deletes all objects of the given kinds. It is an error if objects without finalizers
// remain after endsBy: finalizers keep the others.
func (r *reconciler) clearAll(ctx context.Context, namespace string, kinds []resource, found *findings, endsBy time.Time) {
	var mu sync.Mutex
	_, _ = pods.Parallel(len(kinds), func(i int) error {
		left, err := r.clearKind(ctx, namespace, kinds[i])
		mu.Lock()
		defer mu.Unlock()
		if len(left) > 0 {
			found.remaining[kinds[i].gvr] = len(left)
		}
		hasFinalizers := false
		for _, object := range left {
			for _, finalizer := range object.Finalizers {
				hasFinalizers = true
				found.finalizers[finalizer]++
			}
		}
		if err == nil && len(left) > 0 && !hasFinalizers && !r.clock.Now().Before(endsBy) {
			err = fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", namespace, kinds[i].gvr)
		}
		if err != nil {
			found.content = append(found.content, err)
		}
		return nil
	})
}

// clearKind deletes all objects of one kind and returns those that remain. It lists first: most
// kinds have no objects, and objects that are being deleted need no second request.
func (r *reconciler) clearKind(ctx context.Context, namespace string, kind resource) ([]metav1.PartialObjectMetadata, error) {
	left, err := r.listKind(ctx, namespace, kind)
	if err != nil || (kind.list && !slices.ContainsFunc(left, alive)) {
		return left, err
	}
	if err := r.deleteKind(ctx, namespace, kind, left); err != nil {
		return left, err
	}
	return r.listKind(ctx, namespace, kind)
}

func alive(object metav1.PartialObjectMetadata) bool { return object.DeletionTimestamp == nil }

func (r *reconciler) listKind(ctx context.Context, namespace string, kind resource) ([]metav1.PartialObjectMetadata, error) {
	if !kind.list {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.gvr.GroupVersion().WithKind(kind.kind + "List"))
	if err := r.live.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, ignoreUnserved(err)
	}
	return list.Items, nil
}

// leftovers returns all objects in a namespace.
func (r *reconciler) leftovers(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	kinds, discoverErr, parseErr := r.catalog.resources()
	if err := errors.Join(discoverErr, parseErr); err != nil {
		return nil, err
	}
	var all []metav1.PartialObjectMetadata
	for _, kind := range kinds {
		found, err := r.listKind(ctx, namespace, kind)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].SetGroupVersionKind(kind.gvk())
		}
		all = append(all, found...)
	}
	return all, nil
}

// deleteKind deletes objects with background propagation. Orphaning would be useless, because the
// dependents are deleted as well, and the finalizer orphan would delay the namespace.
func (r *reconciler) deleteKind(ctx context.Context, namespace string, kind resource, objects []metav1.PartialObjectMetadata) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind.gvk())
	if kind.collection {
		return ignoreUnserved(r.client.DeleteAllOf(ctx, object, client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	for i := range objects {
		objects[i].SetGroupVersionKind(kind.gvk())
		if err := r.client.Delete(ctx, &objects[i], client.PropagationPolicy(metav1.DeletePropagationBackground)); ignoreUnserved(err) != nil {
			return err
		}
	}
	return nil
}

// ignoreUnserved drops the errors of kinds without objects to delete: the kind was removed since
// the discovery, or does not support the verb.
func ignoreUnserved(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// endOfPods returns when the longest grace period of the namespace's pods ends, counted from the
// deletion of the namespace.
func endOfPods(ns *corev1.Namespace, list *corev1.PodList) time.Time {
	longest := int64(0)
	for i := range list.Items {
		pod := &list.Items[i]
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && !pods.IsTerminal(pod) {
			longest = max(longest, *grace)
		}
	}
	return ns.DeletionTimestamp.Add(time.Duration(longest) * time.Second)
}
