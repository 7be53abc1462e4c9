// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// AdoptableOrphans passes the events after which an orphan may be adopted: it was created, lost
// its controller, or changed its labels.
func AdoptableOrphans() predicate.Predicate {
	isOrphan := func(obj client.Object) bool { return metav1.GetControllerOfNoCopy(obj) == nil }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isOrphan(e.Object) && e.Object.GetDeletionTimestamp() == nil },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return isOrphan(e.ObjectNew) && (!isOrphan(e.ObjectOld) ||
				!apiequality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()))
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Selecting returns a request for each controller whose selector matches child. An empty
// selector matches nothing.
func Selecting[C any, P interface {
	*C
	client.Object
}](child client.Object, controllers []C, selectorOf func(P) *metav1.LabelSelector) []reconcile.Request {
	if len(child.GetLabels()) == 0 {
		return nil
	}
	var out []reconcile.Request
	for i := range controllers {
		c := P(&controllers[i])
		selector, err := metav1.LabelSelectorAsSelector(selectorOf(c))
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(child.GetLabels())) {
			continue
		}
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
	return out
}
