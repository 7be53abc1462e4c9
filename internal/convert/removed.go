// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/registry/versions"
)

// removed are versions that Kubernetes has removed and Kindred does not serve, and the versions that
// succeeded them.
var removed = map[schema.GroupVersion]schema.GroupVersion{
	policyv1beta1.SchemeGroupVersion:     policyv1.SchemeGroupVersion,
	batchv1beta1.SchemeGroupVersion:      batchv1.SchemeGroupVersion,
	networkingv1beta1.SchemeGroupVersion: networkingv1.SchemeGroupVersion,
	extensionsv1beta1.SchemeGroupVersion: networkingv1.SchemeGroupVersion, // of Ingresses and NetworkPolicies
	rbacv1beta1.SchemeGroupVersion:       rbacv1.SchemeGroupVersion,
	storagev1beta1.SchemeGroupVersion:    storagev1.SchemeGroupVersion, // of StorageClasses
}

// addRemoved adds the removed versions to a scheme that has their successors.
func addRemoved(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(
		policyv1beta1.AddToScheme, batchv1beta1.AddToScheme, networkingv1beta1.AddToScheme, rbacv1beta1.AddToScheme, storagev1beta1.AddToScheme,
		versions.Older[*policyv1beta1.PodDisruptionBudget, *policyv1.PodDisruptionBudget]{
			List: &policyv1beta1.PodDisruptionBudgetList{}, StoredList: &policyv1.PodDisruptionBudgetList{},
			ToStored: func(older *policyv1beta1.PodDisruptionBudget, b *policyv1.PodDisruptionBudget) {
				b.Spec.Selector = swap(older.Spec.Selector, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
			},
			ToOlder: func(b *policyv1.PodDisruptionBudget, older *policyv1beta1.PodDisruptionBudget) {
				older.Spec.Selector = swap(b.Spec.Selector, metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpExists)
			},
		}.Register,
		versions.Older[*batchv1beta1.CronJob, *batchv1.CronJob]{List: &batchv1beta1.CronJobList{}, StoredList: &batchv1.CronJobList{}}.Register,
		versions.Older[*networkingv1beta1.IngressClass, *networkingv1.IngressClass]{List: &networkingv1beta1.IngressClassList{}, StoredList: &networkingv1.IngressClassList{}}.Register,
		versions.Older[*networkingv1beta1.Ingress, *networkingv1.Ingress]{
			List: &networkingv1beta1.IngressList{}, StoredList: &networkingv1.IngressList{},
			ToStored: ingressToStored, ToOlder: ingressToOlder, Default: defaultPathTypes,
		}.Register,
		// The types of both old groups are the same.
		versions.Older[*extensionsv1beta1.Ingress, *networkingv1.Ingress]{
			List: &extensionsv1beta1.IngressList{}, StoredList: &networkingv1.IngressList{},
			ToStored: func(older *extensionsv1beta1.Ingress, i *networkingv1.Ingress) {
				same := &networkingv1beta1.Ingress{}
				versions.Copy(older, same)
				ingressToStored(same, i)
			},
			ToOlder: func(i *networkingv1.Ingress, older *extensionsv1beta1.Ingress) {
				same := &networkingv1beta1.Ingress{}
				versions.Copy(i, same)
				ingressToOlder(i, same)
				versions.Copy(same, older)
			},
			Default: defaultPathTypes,
		}.Register,
		versions.Older[*extensionsv1beta1.NetworkPolicy, *networkingv1.NetworkPolicy]{List: &extensionsv1beta1.NetworkPolicyList{}, StoredList: &networkingv1.NetworkPolicyList{}}.Register,
		versions.Older[*rbacv1beta1.Role, *rbacv1.Role]{List: &rbacv1beta1.RoleList{}, StoredList: &rbacv1.RoleList{}}.Register,
		versions.Older[*rbacv1beta1.RoleBinding, *rbacv1.RoleBinding]{List: &rbacv1beta1.RoleBindingList{}, StoredList: &rbacv1.RoleBindingList{}}.Register,
		versions.Older[*rbacv1beta1.ClusterRole, *rbacv1.ClusterRole]{List: &rbacv1beta1.ClusterRoleList{}, StoredList: &rbacv1.ClusterRoleList{}}.Register,
		versions.Older[*rbacv1beta1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding]{List: &rbacv1beta1.ClusterRoleBindingList{}, StoredList: &rbacv1.ClusterRoleBindingList{}}.Register,
		versions.Older[*storagev1beta1.StorageClass, *storagev1.StorageClass]{List: &storagev1beta1.StorageClassList{}, StoredList: &storagev1.StorageClassList{}}.Register,
	)
	return builder.AddToScheme(scheme)
}

// emptySelector is the label by which policy/v1 writes a selector that is empty in policy/v1beta1, and
// the other way round: an empty selector selects no pods in policy/v1beta1, and all in policy/v1.
const emptySelector = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// swap converts a selector: an empty one, and the one that stands for the empty one of the other
// version.
func swap(selector *metav1.LabelSelector, empty, full metav1.LabelSelectorOperator) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels) > 0 {
		return selector
	}
	switch expressions := selector.MatchExpressions; {
	case len(expressions) == 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: emptySelector, Operator: empty}}}
	case len(expressions) == 1 && expressions[0].Key == emptySelector && expressions[0].Operator == full:
		return &metav1.LabelSelector{}
	}
	return selector
}

func ingressToStored(older *networkingv1beta1.Ingress, i *networkingv1.Ingress) {
	if older.Spec.Backend != nil {
		i.Spec.DefaultBackend = backendToStored(older.Spec.Backend)
	}
	eachPath(older, i, func(from *networkingv1beta1.HTTPIngressPath, to *networkingv1.HTTPIngressPath) {
		to.Backend = *backendToStored(&from.Backend)
	})
}

func ingressToOlder(i *networkingv1.Ingress, older *networkingv1beta1.Ingress) {
	if i.Spec.DefaultBackend != nil {
		older.Spec.Backend = backendToOlder(i.Spec.DefaultBackend)
	}
	eachPath(older, i, func(to *networkingv1beta1.HTTPIngressPath, from *networkingv1.HTTPIngressPath) {
		to.Backend = *backendToOlder(&from.Backend)
	})
}

func eachPath(older *networkingv1beta1.Ingress, stored *networkingv1.Ingress, convert func(*networkingv1beta1.HTTPIngressPath, *networkingv1.HTTPIngressPath)) {
	for r := range older.Spec.Rules {
		if older.Spec.Rules[r].HTTP == nil {
			continue
		}
		for p := range older.Spec.Rules[r].HTTP.Paths {
			convert(&older.Spec.Rules[r].HTTP.Paths[p], &stored.Spec.Rules[r].HTTP.Paths[p])
		}
	}
}

func backendToStored(older *networkingv1beta1.IngressBackend) *networkingv1.IngressBackend {
	out := &networkingv1.IngressBackend{Resource: older.Resource}
	if port := older.ServicePort; older.ServiceName != "" || port != (intstr.IntOrString{}) {
		out.Service = &networkingv1.IngressServiceBackend{Name: older.ServiceName, Port: networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal}}
	}
	return out
}

func backendToOlder(b *networkingv1.IngressBackend) *networkingv1beta1.IngressBackend {
	out := &networkingv1beta1.IngressBackend{Resource: b.Resource}
	if b.Service == nil {
		return out
	}
	out.ServiceName, out.ServicePort = b.Service.Name, intstr.FromInt32(b.Service.Port.Number)
	if b.Service.Port.Name != "" {
		out.ServicePort = intstr.FromString(b.Service.Port.Name)
	}
	return out
}

// defaultPathTypes sets the default of the versions in which the path type was optional.
func defaultPathTypes(i *networkingv1.Ingress) {
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for p := range rule.HTTP.Paths {
			if rule.HTTP.Paths[p].PathType == nil {
				rule.HTTP.Paths[p].PathType = new(networkingv1.PathTypeImplementationSpecific)
			}
		}
	}
}
