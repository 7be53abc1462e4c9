// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
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
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			Deployment,
			ReplicaSet,
			StatefulSet,
			DaemonSet,
			ControllerRevision,
		}}},
	}
}
