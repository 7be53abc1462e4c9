// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// These defaults of a pod template apply to all kinds.
	template := v1.PodTemplateSpec{Spec: v1.PodSpec{
		RestartPolicy:                 v1.RestartPolicyAlways,
		DNSPolicy:                     v1.DNSClusterFirst,
		SchedulerName:                 v1.DefaultSchedulerName,
		SecurityContext:               &v1.PodSecurityContext{},
		TerminationGracePeriodSeconds: new(int64(30)),
	}}
	quarter, zero, one := intstr.FromString("25%"), intstr.FromInt32(0), intstr.FromInt32(1)
	retain := appsv1.RetainPersistentVolumeClaimRetentionPolicyType

	for name, test := range map[string]struct{ given, want runtime.Object }{
		"Deployment": {
			given: &appsv1.Deployment{},
			want: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)), RevisionHistoryLimit: new(int32(10)), ProgressDeadlineSeconds: new(int32(600)),
				Strategy: appsv1.DeploymentStrategy{
					Type:          appsv1.RollingUpdateDeploymentStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter},
				},
				Template: template,
			}},
		},
		"Deployment that recreates": {
			given: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}},
			want: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(0)), RevisionHistoryLimit: new(int32(10)), ProgressDeadlineSeconds: new(int32(600)),
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Template: template,
			}},
		},
		"ReplicaSet": {
			given: &appsv1.ReplicaSet{},
			want:  &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)), Template: template}},
		},
		"DaemonSet": {
			given: &appsv1.DaemonSet{},
			want: &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "0"}},
				Spec: appsv1.DaemonSetSpec{
					RevisionHistoryLimit: new(int32(10)),
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
						Type:          appsv1.RollingUpdateDaemonSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &zero},
					},
					Template: template,
				}},
		},
		"DaemonSet on deletion, with parameters that it does not use": {
			given: &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.OnDeleteDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{}}}},
			want: &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "0"}},
				Spec: appsv1.DaemonSetSpec{
					RevisionHistoryLimit: new(int32(10)),
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
						Type:          appsv1.OnDeleteDaemonSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &zero, MaxSurge: &zero},
					},
					Template: template,
				}},
		},
		"DaemonSet on deletion": {
			given: &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}}},
			want: &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "0"}},
				Spec: appsv1.DaemonSetSpec{
					RevisionHistoryLimit: new(int32(10)),
					UpdateStrategy:       appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
					Template:             template,
				}},
		},
		"StatefulSet": {
			given: &appsv1.StatefulSet{},
			want: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
				Replicas: new(int32(1)), RevisionHistoryLimit: new(int32(10)),
				PodManagementPolicy: appsv1.OrderedReadyPodManagement,
				UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
					Type:          appsv1.RollingUpdateStatefulSetStrategyType,
					RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0)), MaxUnavailable: &one},
				},
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain},
				Template:                             template,
			}},
		},
		"StatefulSet with only the type of the strategy": {
			given: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}}},
			want: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
				Replicas: new(int32(1)), RevisionHistoryLimit: new(int32(10)),
				PodManagementPolicy:                  appsv1.OrderedReadyPodManagement,
				UpdateStrategy:                       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
				PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain},
				Template:                             template,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				scheme.Default(test.given)
				if diff := cmp.Diff(test.want, test.given); diff != "" {
					t.Errorf("defaults (-want +got):\n%s", diff)
				}
			}
		})
	}
}
