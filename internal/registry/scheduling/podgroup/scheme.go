// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroup

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The generated validations add themselves to localSchemeBuilder.
var localSchemeBuilder = runtime.NewSchemeBuilder(registerTypes, registerDefaults)

// AddToScheme adds the types, with their defaults and declared validations.
var AddToScheme = localSchemeBuilder.AddToScheme

// registerTypes adds the types without PriorityClass, which v1.22 removed from the version.
func registerTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schedulingv1beta1.SchemeGroupVersion,
		&schedulingv1beta1.Workload{}, &schedulingv1beta1.WorkloadList{},
		&schedulingv1beta1.PodGroup{}, &schedulingv1beta1.PodGroupList{})
	metav1.AddToGroupVersion(scheme, schedulingv1beta1.SchemeGroupVersion)
	return nil
}

func registerDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&schedulingv1beta1.PodGroup{}, func(obj any) { setDefaults(obj.(*schedulingv1beta1.PodGroup)) })
	scheme.AddTypeDefaultingFunc(&schedulingv1beta1.PodGroupList{}, func(obj any) {
		list := obj.(*schedulingv1beta1.PodGroupList)
		for i := range list.Items {
			setDefaults(&list.Items[i])
		}
	})
	return nil
}

func setDefaults(group *schedulingv1beta1.PodGroup) {
	if group.Spec.DisruptionMode == nil {
		group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
	}
}
