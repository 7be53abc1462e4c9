// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"maps"
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kindred-project/kindred/internal/registry/generic"
	"github.com/kindred-project/kindred/internal/registry/versions"
)

// This file declares the versions before apps/v1: what their defaults and fields are, where they
// differ. Selectors were mutable, and deletions orphaned, by the two functions that follow.

// MutableSelectors reports whether a version allows changes of spec.selector, which apps/v1beta2
// forbade.
func MutableSelectors(gv schema.GroupVersion) bool {
	return gv == extensionsv1beta1.SchemeGroupVersion || gv == appsv1beta1.SchemeGroupVersion
}

// OrphansByDefault reports whether a DELETE without propagation policy orphans the dependents of
// workloads in a version. That changed with apps/v1.
func OrphansByDefault(gv schema.GroupVersion) bool {
	return MutableSelectors(gv) || gv == appsv1beta2.SchemeGroupVersion
}

// addV1beta2 registers apps/v1beta2, whose fields and defaults are those of apps/v1.
func addV1beta2(scheme *runtime.Scheme) error {
	return register(scheme,
		generic.Internal(appsv1.GroupName, &autoscalingv1.Scale{}),
		versions.Older[*appsv1beta2.Deployment, *appsv1.Deployment]{List: &appsv1beta2.DeploymentList{}, StoredList: &appsv1.DeploymentList{}}.Register,
		versions.Older[*appsv1beta2.ReplicaSet, *appsv1.ReplicaSet]{List: &appsv1beta2.ReplicaSetList{}, StoredList: &appsv1.ReplicaSetList{}}.Register,
		versions.Older[*appsv1beta2.StatefulSet, *appsv1.StatefulSet]{List: &appsv1beta2.StatefulSetList{}, StoredList: &appsv1.StatefulSetList{}}.Register,
		versions.Older[*appsv1beta2.DaemonSet, *appsv1.DaemonSet]{List: &appsv1beta2.DaemonSetList{}, StoredList: &appsv1.DaemonSetList{}}.Register,
		versions.Older[*appsv1beta2.ControllerRevision, *appsv1.ControllerRevision]{List: &appsv1beta2.ControllerRevisionList{}, StoredList: &appsv1.ControllerRevisionList{}}.Register,
		olderScale(func(s *appsv1beta2.Scale) selectors { return selectors{&s.Status.Selector, &s.Status.TargetSelector} }),
	)
}

func addV1beta1(scheme *runtime.Scheme) error {
	return register(scheme,
		generic.Internal(appsv1.GroupName, &autoscalingv1.Scale{}, &extensionsv1beta1.DeploymentRollback{}),
		versions.Older[*appsv1beta1.Deployment, *appsv1.Deployment]{
			List: &appsv1beta1.DeploymentList{}, StoredList: &appsv1.DeploymentList{},
			Default: func(d *appsv1.Deployment) {
				defaultFromTemplate(&d.ObjectMeta, &d.Spec.Selector, d.Spec.Template.Labels)
				setDefault(&d.Spec.RevisionHistoryLimit, 2)
			},
			ToStored: func(older *appsv1beta1.Deployment, d *appsv1.Deployment) {
				storeRollback(&d.ObjectMeta, (*extensionsv1beta1.RollbackConfig)(older.Spec.RollbackTo))
			},
			ToOlder: func(_ *appsv1.Deployment, older *appsv1beta1.Deployment) {
				older.Spec.RollbackTo = (*appsv1beta1.RollbackConfig)(takeRollback(&older.ObjectMeta))
			},
		}.Register,
		versions.Older[*appsv1beta1.StatefulSet, *appsv1.StatefulSet]{
			List: &appsv1beta1.StatefulSetList{}, StoredList: &appsv1.StatefulSetList{},
			Default: func(s *appsv1.StatefulSet) {
				defaultFromTemplate(&s.ObjectMeta, &s.Spec.Selector, s.Spec.Template.Labels)
				if s.Spec.UpdateStrategy.Type == "" {
					s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
				}
			},
		}.Register,
		versions.Older[*appsv1beta1.ControllerRevision, *appsv1.ControllerRevision]{List: &appsv1beta1.ControllerRevisionList{}, StoredList: &appsv1.ControllerRevisionList{}}.Register,
		versions.Older[*appsv1beta1.DeploymentRollback, *extensionsv1beta1.DeploymentRollback]{}.Register,
		olderScale(func(s *appsv1beta1.Scale) selectors { return selectors{&s.Status.Selector, &s.Status.TargetSelector} }),
	)
}

func addExtensions(scheme *runtime.Scheme) error {
	return register(scheme,
		generic.Internal(extensionsv1beta1.GroupName, &autoscalingv1.Scale{}, &extensionsv1beta1.DeploymentRollback{},
			&appsv1.Deployment{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{}, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}),
		versions.Older[*extensionsv1beta1.Deployment, *appsv1.Deployment]{
			List: &extensionsv1beta1.DeploymentList{}, StoredList: &appsv1.DeploymentList{},
			Default: defaultExtensionsDeployment,
			ToStored: func(older *extensionsv1beta1.Deployment, d *appsv1.Deployment) {
				storeRollback(&d.ObjectMeta, older.Spec.RollbackTo)
			},
			ToOlder: func(_ *appsv1.Deployment, older *extensionsv1beta1.Deployment) {
				older.Spec.RollbackTo = takeRollback(&older.ObjectMeta)
			},
		}.Register,
		versions.Older[*extensionsv1beta1.ReplicaSet, *appsv1.ReplicaSet]{
			List: &extensionsv1beta1.ReplicaSetList{}, StoredList: &appsv1.ReplicaSetList{},
			Default: func(r *appsv1.ReplicaSet) {
				defaultFromTemplate(&r.ObjectMeta, &r.Spec.Selector, r.Spec.Template.Labels)
			},
		}.Register,
		versions.Older[*extensionsv1beta1.DaemonSet, *appsv1.DaemonSet]{
			List: &extensionsv1beta1.DaemonSetList{}, StoredList: &appsv1.DaemonSetList{},
			Default: func(d *appsv1.DaemonSet) {
				defaultFromTemplate(&d.ObjectMeta, &d.Spec.Selector, d.Spec.Template.Labels)
				if d.Spec.UpdateStrategy.Type == "" {
					d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
				}
			},
			ToStored: func(older *extensionsv1beta1.DaemonSet, d *appsv1.DaemonSet) {
				dropAnnotation(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration)
				if older.Spec.TemplateGeneration != 0 {
					annotate(&d.ObjectMeta, appsv1.DeprecatedTemplateGeneration, older.Spec.TemplateGeneration)
				}
			},
			ToOlder: func(d *appsv1.DaemonSet, older *extensionsv1beta1.DaemonSet) {
				older.Spec.TemplateGeneration, _ = takeAnnotation(&older.ObjectMeta, appsv1.DeprecatedTemplateGeneration)
			},
		}.Register,
		olderScale(func(s *extensionsv1beta1.Scale) selectors {
			return selectors{&s.Status.Selector, &s.Status.TargetSelector}
		}),
	)
}

// storeRollback stores spec.rollbackTo, which both older versions of Deployments have.
func storeRollback(object *metav1.ObjectMeta, to *extensionsv1beta1.RollbackConfig) {
	dropAnnotation(object, appsv1.DeprecatedRollbackTo)
	if to != nil {
		annotate(object, appsv1.DeprecatedRollbackTo, to.Revision)
	}
}

// takeRollback removes what storeRollback stored, and returns it.
func takeRollback(object *metav1.ObjectMeta) *extensionsv1beta1.RollbackConfig {
	revision, ok := takeAnnotation(object, appsv1.DeprecatedRollbackTo)
	if !ok {
		return nil
	}
	return &extensionsv1beta1.RollbackConfig{Revision: revision}
}

func register(scheme *runtime.Scheme, all ...func(*runtime.Scheme) error) error {
	builder := runtime.NewSchemeBuilder(all...)
	return builder.AddToScheme(scheme)
}

// unlimited means "no limit" in fields for which extensions/v1beta1 has no default.
const unlimited = math.MaxInt32

func defaultExtensionsDeployment(d *appsv1.Deployment) {
	defaultFromTemplate(&d.ObjectMeta, &d.Spec.Selector, d.Spec.Template.Labels)
	setDefault(&d.Spec.ProgressDeadlineSeconds, unlimited)
	setDefault(&d.Spec.RevisionHistoryLimit, unlimited)
	strategy := &d.Spec.Strategy
	if strategy.Type != "" && strategy.Type != appsv1.RollingUpdateDeploymentStrategyType && strategy.RollingUpdate == nil {
		return
	}
	if strategy.RollingUpdate == nil {
		strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	setDefault(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	setDefault(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(1))
}

// defaultFromTemplate defaults the selector, and the labels of the object, to the labels of the
// template.
func defaultFromTemplate(object *metav1.ObjectMeta, selector **metav1.LabelSelector, labels map[string]string) {
	if labels == nil {
		return
	}
	setDefault(selector, metav1.LabelSelector{MatchLabels: maps.Clone(labels)})
	if len(object.Labels) == 0 {
		object.Labels = maps.Clone(labels)
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// annotate stores a field that apps/v1 does not have. The annotations may be shared.
func annotate(object *metav1.ObjectMeta, name string, value int64) {
	object.Annotations = maps.Clone(object.Annotations)
	metav1.SetMetaDataAnnotation(object, name, strconv.FormatInt(value, 10))
}

// dropAnnotation removes an annotation that is a field in the version of a client.
func dropAnnotation(object *metav1.ObjectMeta, name string) {
	if _, found := object.Annotations[name]; found {
		object.Annotations = maps.Clone(object.Annotations)
		delete(object.Annotations, name)
	}
}

// takeAnnotation removes an annotation that holds a field, and reports whether it is there. It leaves
// values that are no numbers.
func takeAnnotation(object *metav1.ObjectMeta, name string) (int64, bool) {
	value, err := strconv.ParseInt(object.Annotations[name], 10, 64)
	if err != nil {
		return 0, false
	}
	dropAnnotation(object, name)
	return value, true
}
