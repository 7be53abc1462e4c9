// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/kindred-project/kindred/internal/registry/admissionregistration"
)

// extending initializes what only the plugins for policies and webhooks need: how to reach a webhook, and which
// requests they do not see.
func extending(g *genericapiserver.Config, services aggregatorapiserver.ServiceResolver) genericadmission.PluginInitializers {
	callers := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, g.LoopbackClientConfig, g.TracerProvider)
	return genericadmission.PluginInitializers{webhookinit.NewPluginInitializer(callers, services), unseen{}}
}

// unseen excludes reviews of authentication and authorization from these plugins.
type unseen struct{}

func (unseen) Initialize(plugin genericadmission.Interface) {
	if wants, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		wants.SetExcludedAdmissionResources(admissionregistration.ExcludedResources())
	}
}

// startPolicies starts the plugins for policies. It does not fail the start of the server: k8s.io/apiserver ends the process if a
// hook fails, also because of a stop.
func (s *Server) startPolicies(ctx context.Context) {
	if err := s.policies.Start(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot start the admission policies; writes are refused")
	}
}
