// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	defaultReplicas                int32 = 1
	defaultRevisionHistoryLimit    int32 = 10
	defaultProgressDeadlineSeconds int32 = 600
)

func SetDefaults_Deployment(obj *appsv1.Deployment) {
	spec := &obj.Spec
	spec.Replicas = cmp.Or(spec.Replicas, new(defaultReplicas))
	spec.RevisionHistoryLimit = cmp.Or(spec.RevisionHistoryLimit, new(defaultRevisionHistoryLimit))
	spec.ProgressDeadlineSeconds = cmp.Or(spec.ProgressDeadlineSeconds, new(defaultProgressDeadlineSeconds))
	strategy := &spec.Strategy
	strategy.Type = cmp.Or(strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	strategy.RollingUpdate = cmp.Or(strategy.RollingUpdate, &appsv1.RollingUpdateDeployment{})
	strategy.RollingUpdate.MaxUnavailable = cmp.Or(strategy.RollingUpdate.MaxUnavailable, new(intstr.FromString("25%")))
	strategy.RollingUpdate.MaxSurge = cmp.Or(strategy.RollingUpdate.MaxSurge, new(intstr.FromString("25%")))
}

func SetDefaults_ReplicaSet(obj *appsv1.ReplicaSet) {
	obj.Spec.Replicas = cmp.Or(obj.Spec.Replicas, new(defaultReplicas))
}

// SetDefaults_DaemonSet defaults to rolling updates of one pod at a time, which delete the old pod
// first, because a node may not have room for both.
func SetDefaults_DaemonSet(obj *appsv1.DaemonSet) {
	// The strategy sets the count. The annotation is defaulted all the same, so that the client
	// that creates the object owns it.
	if _, found := obj.Annotations[appsv1.DeprecatedTemplateGeneration]; !found {
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, appsv1.DeprecatedTemplateGeneration, "0")
	}
	spec := &obj.Spec
	spec.RevisionHistoryLimit = cmp.Or(spec.RevisionHistoryLimit, new(defaultRevisionHistoryLimit))
	strategy := &spec.UpdateStrategy
	strategy.Type = cmp.Or(strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	unavailable := int32(0) // of a strategy that reads none of it: upstream's internal type has no "unset"
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		strategy.RollingUpdate = cmp.Or(strategy.RollingUpdate, &appsv1.RollingUpdateDaemonSet{})
		unavailable = 1
	}
	if strategy.RollingUpdate == nil {
		return
	}
	strategy.RollingUpdate.MaxUnavailable = cmp.Or(strategy.RollingUpdate.MaxUnavailable, new(intstr.FromInt32(unavailable)))
	strategy.RollingUpdate.MaxSurge = cmp.Or(strategy.RollingUpdate.MaxSurge, new(intstr.FromInt32(0)))
}

func SetDefaults_StatefulSet(obj *appsv1.StatefulSet) {
	spec := &obj.Spec
	spec.Replicas = cmp.Or(spec.Replicas, new(defaultReplicas))
	spec.RevisionHistoryLimit = cmp.Or(spec.RevisionHistoryLimit, new(defaultRevisionHistoryLimit))
	spec.PodManagementPolicy = cmp.Or(spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	defaultStatefulSetStrategy(&spec.UpdateStrategy)
	// Old clients expect kind and apiVersion in claim templates.
	for i := range spec.VolumeClaimTemplates {
		spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	}

	retention := cmp.Or(spec.PersistentVolumeClaimRetentionPolicy, &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retention.WhenDeleted = cmp.Or(retention.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	retention.WhenScaled = cmp.Or(retention.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	spec.PersistentVolumeClaimRetentionPolicy = retention
}

// defaultStatefulSetStrategy defaults the parameters of a rolling update. A strategy that has only
// the type RollingUpdate stays without parameters, as in kube-apiserver.
func defaultStatefulSetStrategy(strategy *appsv1.StatefulSetUpdateStrategy) {
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		strategy.RollingUpdate = cmp.Or(strategy.RollingUpdate, &appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type != appsv1.RollingUpdateStatefulSetStrategyType || strategy.RollingUpdate == nil {
		return
	}
	strategy.RollingUpdate.Partition = cmp.Or(strategy.RollingUpdate.Partition, new(int32(0)))
	strategy.RollingUpdate.MaxUnavailable = cmp.Or(strategy.RollingUpdate.MaxUnavailable, new(intstr.FromInt32(1)))
}
