// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scales finds the scale of the owners of pods: of built-in kinds in the cache, of other kinds by
// their scale subresource.
type scales struct {
	client client.Client
	served discovery.DiscoveryInterface
}

// scale is the number of replicas that an owner requests. Pods of a Deployment's ReplicaSets have one scale, the
// Deployment's.
type scale struct {
	owner    types.UID
	replicas int
}

// total returns the sum of the scales of all owners, and the names of pods without a controller.
func (s scales) total(ctx context.Context, selected []*corev1.Pod) (total int, unmanaged []string, err error) {
	known, counted := map[types.UID]bool{}, map[types.UID]bool{}
	for _, pod := range selected {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = append(unmanaged, pod.Name)
			continue
		}
		if known[ref.UID] {
			continue
		}
		known[ref.UID] = true
		found, err := s.of(ctx, pod.Namespace, ref)
		if err != nil {
			return 0, nil, err
		}
		if found == nil {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		if !counted[found.owner] {
			counted[found.owner] = true
			total += found.replicas
		}
	}
	return total, unmanaged, nil
}

// of returns the scale of an owner, or nil if it does not exist.
func (s scales) of(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	var found *scale
	switch kind := version.WithKind(ref.Kind); {
	case isApps(kind, "ReplicaSet"):
		found, err = s.ofReplicaSet(ctx, namespace, ref)
	case isApps(kind, "StatefulSet"):
		set := &appsv1.StatefulSet{}
		if err = s.get(ctx, namespace, ref, set); err == nil {
			found = &scale{set.UID, replicasOf(set.Spec.Replicas)}
		}
	case kind.GroupKind() == schema.GroupKind{Kind: "ReplicationController"}:
		rc := &corev1.ReplicationController{}
		if err = s.get(ctx, namespace, ref, rc); err == nil {
			found = &scale{rc.UID, replicasOf(rc.Spec.Replicas)}
		}
	}
	if client.IgnoreNotFound(err) != nil || found != nil {
		return found, err
	}
	return s.ofSubresource(ctx, namespace, ref, version.WithKind(ref.Kind))
}

// ofReplicaSet returns the scale of a ReplicaSet, or of the Deployment that controls it.
func (s scales) ofReplicaSet(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error) {
	rs := &appsv1.ReplicaSet{}
	if err := s.get(ctx, namespace, ref, rs); err != nil {
		return nil, err
	}
	if of := metav1.GetControllerOfNoCopy(rs); of != nil && isApps(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind), "Deployment") {
		deployment := &appsv1.Deployment{}
		err := s.get(ctx, namespace, of, deployment)
		if err == nil {
			return &scale{deployment.UID, replicasOf(deployment.Spec.Replicas)}, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return &scale{rs.UID, replicasOf(rs.Spec.Replicas)}, nil
}

// get reads an owner from the cache. An object with another UID is not found.
func (s scales) get(ctx context.Context, namespace string, ref *metav1.OwnerReference, owner client.Object) error {
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, owner); err != nil {
		return err
	}
	if owner.GetUID() != ref.UID {
		return apierrors.NewNotFound(schema.GroupResource{}, ref.Name)
	}
	return nil
}

// ofSubresource reads the scale subresource of an owner.
func (s scales) ofSubresource(ctx context.Context, namespace string, ref *metav1.OwnerReference, kind schema.GroupVersionKind) (*scale, error) {
	owner, read := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	owner.SetGroupVersionKind(kind)
	owner.SetNamespace(namespace)
	owner.SetName(ref.Name)
	err := s.client.SubResource("scale").Get(ctx, owner, read)
	if apierrors.IsNotFound(err) {
		return nil, s.checkScalable(kind)
	}
	if err != nil || read.GetUID() != ref.UID {
		return nil, err
	}
	replicas, _, err := unstructured.NestedInt64(read.Object, "spec", "replicas")
	return &scale{read.GetUID(), int(replicas)}, err
}

// checkScalable returns an error if a kind has no scale subresource.
func (s scales) checkScalable(kind schema.GroupVersionKind) error {
	mapping, err := s.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	list, err := s.served.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return err
	}
	for _, resource := range list.APIResources {
		if resource.Name == mapping.Resource.Resource+"/scale" && resource.Kind == "Scale" {
			return nil
		}
	}
	return errors.New(mapping.Resource.GroupResource().String() + " does not implement the scale subresource")
}

// isApps reports whether a kind is the given one of the group apps, or of extensions, its predecessor.
func isApps(kind schema.GroupVersionKind, name string) bool {
	return kind.Kind == name && slices.Contains([]string{"apps", "extensions"}, kind.Group)
}

func replicasOf(n *int32) int { return int(ptr.Deref(n, 1)) }
