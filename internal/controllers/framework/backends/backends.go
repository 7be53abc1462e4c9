// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backends holds what the controllers of EndpointSlices and Endpoints share: which
// Services select pods, which Services select a given pod, and which changes of a pod
// may change endpoints.
package backends

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Selects reports whether the endpoints of a Service are the pods that its selector matches.
func Selects(service *corev1.Service) bool {
	return service.Spec.Selector != nil && service.Spec.Type != corev1.ServiceTypeExternalName
}

// ServicesOf returns a request for each Service that selects the pod.
func ServicesOf(ctx context.Context, reader client.Reader, pod client.Object) []reconcile.Request {
	services := &corev1.ServiceList{}
	if err := reader.List(ctx, services, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the Services of a pod", "pod", klog.KObj(pod))
		return nil
	}
	var out []reconcile.Request
	for i := range services.Items {
		service := &services.Items[i]
		if Selects(service) && labels.SelectorFromValidatedSet(service.Spec.Selector).Matches(labels.Set(pod.GetLabels())) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(service)})
		}
	}
	return out
}

// ServiceOfSlice returns a function that maps an EndpointSlice to a request for its Service, or for the
// Endpoints of that name, if the slice has this value of the managed-by label.
func ServiceOfSlice(managedBy string) handler.MapFunc {
	return func(_ context.Context, slice client.Object) []reconcile.Request {
		labels := slice.GetLabels()
		if labels[discoveryv1.LabelManagedBy] != managedBy || labels[discoveryv1.LabelServiceName] == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: slice.GetNamespace(), Name: labels[discoveryv1.LabelServiceName]}}}
	}
}

// PodChanges passes the events of pods that may change endpoints: phase, IPs,
// readiness, deletion, node, host name, labels.
func PodChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return util.GetPodUpdateProjectionKey(e.ObjectOld, e.ObjectNew) != nil
	}}
}

// IsNodeReady reports whether obj is a ready node.
func IsNodeReady(obj client.Object) bool {
	node, ok := obj.(*corev1.Node)
	return ok && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
