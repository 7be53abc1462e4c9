// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is the API group apps.
func Group() generic.Group {
	return generic.Group{
		Name:     appsv1.GroupName,
		Priority: 17800,
		Scheme: []func(*runtime.Scheme) error{
			appsv1.AddToScheme, AddToScheme,
			autoscalingv1.AddToScheme, generic.Internal(autoscalingv1.GroupName, &autoscalingv1.Scale{}),
		},
		Versions: []generic.Version{
			{Name: "v1", Resources: []generic.Resource{
				Deployment,
				ReplicaSet,
				StatefulSet,
				DaemonSet,
				ControllerRevision,
			}},
			{
				Name: "v1beta2", As: appsv1.SchemeGroupVersion, OffByDefault: true,
				Scheme: []func(*runtime.Scheme) error{appsv1beta2.AddToScheme, addV1beta2},
			},
			{
				Name: "v1beta1", As: appsv1.SchemeGroupVersion, OffByDefault: true,
				Scheme: []func(*runtime.Scheme) error{appsv1beta1.AddToScheme, addV1beta1},
				Adapt:  withRollback("deployments", "statefulsets", "controllerrevisions"),
			},
		},
	}
}

// Extensions is the API group extensions, in which Deployments, ReplicaSets and DaemonSets were
// before they moved to apps. They are the same objects.
func Extensions() generic.Group {
	return generic.Group{
		Name: extensionsv1beta1.GroupName,
		// After apps: `kubectl get deployments` means those of apps/v1.
		Priority: 17150,
		Versions: []generic.Version{{
			Name: "v1beta1", As: appsv1.SchemeGroupVersion, OffByDefault: true,
			Scheme: []func(*runtime.Scheme) error{extensionsv1beta1.AddToScheme, addExtensions},
			Adapt:  withRollback("deployments", "replicasets", "daemonsets"),
		}},
	}
}
