// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are what some kinds of the group need besides storage.
type Dependencies struct {
	Nodes    NodeConnections
	Tokens   TokenIssuer
	Services ServiceDependencies
	// Components are the parts of the control plane that componentstatuses shows.
	Components []Component
	// Budgets are checked before a pod is evicted.
	Budgets policyclient.PodDisruptionBudgetsGetter
}

// Group is the legacy group "".
func Group(d Dependencies) generic.Group {
	return generic.Group{
		Name:     corev1.GroupName,
		Priority: 18000,
		Scheme: []func(*runtime.Scheme) error{
			corev1.AddToScheme, AddToScheme, addEvictions,
			autoscalingv1.AddToScheme, generic.Internal(autoscalingv1.GroupName, &autoscalingv1.Scale{}),
			authenticationv1.AddToScheme, generic.Internal(authenticationv1.GroupName, &authenticationv1.TokenRequest{}),
			generic.Internal(corev1.GroupName, &corev1.ComponentStatusList{}, &corev1.Binding{}, &corev1.PodLogOptions{}, &corev1.PodExecOptions{},
				&corev1.PodAttachOptions{}, &corev1.PodPortForwardOptions{}, &corev1.PodProxyOptions{},
				&corev1.ServiceProxyOptions{}, &corev1.NodeProxyOptions{}),
			generic.QueryOptions[corev1.PodLogOptions](),
			generic.QueryOptions[corev1.PodExecOptions](),
			generic.QueryOptions[corev1.PodAttachOptions](),
			generic.QueryOptions[corev1.PodPortForwardOptions](),
			generic.QueryOptions[corev1.PodProxyOptions](),
			generic.QueryOptions[corev1.ServiceProxyOptions](),
			generic.QueryOptions[corev1.NodeProxyOptions](),
		},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			Namespace,
			node(d.Nodes),
			pod(d.Nodes, d.Budgets),
			ConfigMap,
			Secret,
			serviceAccount(d.Tokens),
			service(d.Services, d.Nodes),
			Endpoints,
			Event,
			PodTemplate,
			ReplicationController,
			generic.Clocked[*corev1.PersistentVolume](persistentVolume),
			PersistentVolumeClaim,
			LimitRange,
			ResourceQuota,
			newComponentStatus(d.Components),
		}}},
	}
}
