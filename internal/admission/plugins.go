// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission lists the in-tree admission plugins, which complete and
// judge requests after they were authorized and before they are stored.
//
// A plugin is a package with a Name and a New. It works on the types of
// k8s.io/api, asks for what it needs through the interfaces of
// k8s.io/apiserver/pkg/admission/initializer, and knows of no other plugin. To
// add one, add its package and a line in registered and one in Order.
package admission

import (
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/admission/certificatesigner"
	"github.com/kindred-project/kindred/internal/admission/certificatesubject"
	"github.com/kindred-project/kindred/internal/admission/claimresize"
	"github.com/kindred-project/kindred/internal/admission/declaredfeatures"
	"github.com/kindred-project/kindred/internal/admission/ingressclass"
	"github.com/kindred-project/kindred/internal/admission/limitranger"
	"github.com/kindred-project/kindred/internal/admission/noderestriction"
	"github.com/kindred-project/kindred/internal/admission/nodetaint"
	"github.com/kindred-project/kindred/internal/admission/ownerrefs"
	"github.com/kindred-project/kindred/internal/admission/podresize"
	"github.com/kindred-project/kindred/internal/admission/podsecurity"
	"github.com/kindred-project/kindred/internal/admission/priority"
	"github.com/kindred-project/kindred/internal/admission/runtimeclass"
	"github.com/kindred-project/kindred/internal/admission/serviceaccount"
	"github.com/kindred-project/kindred/internal/admission/storageclass"
	"github.com/kindred-project/kindred/internal/admission/storageobjectinuse"
	"github.com/kindred-project/kindred/internal/admission/tolerations"
	"github.com/kindred-project/kindred/internal/admission/topologylabels"
	"github.com/kindred-project/kindred/internal/admission/trustbundleattest"
)

// registered are the plugins of this package's subpackages, in the order in
// which they run.
func registered(clock clock.Clock) []named {
	return []named{
		{limitranger.Name, func() admission.Interface { return limitranger.New(clock) }},
		{serviceaccount.Name, func() admission.Interface { return serviceaccount.New(clock) }},
		{noderestriction.Name, func() admission.Interface { return noderestriction.New() }},
		{nodetaint.Name, func() admission.Interface { return nodetaint.New() }},
		{podsecurity.Name, func() admission.Interface { return podsecurity.New() }},
		{priority.Name, func() admission.Interface { return priority.New() }},
		{tolerations.Name, func() admission.Interface { return tolerations.New() }},
		{storageclass.Name, func() admission.Interface { return storageclass.New() }},
		{storageobjectinuse.Name, func() admission.Interface { return storageobjectinuse.New() }},
		{ownerrefs.Name, func() admission.Interface { return ownerrefs.New() }},
		{claimresize.Name, func() admission.Interface { return claimresize.New() }},
		{runtimeclass.Name, func() admission.Interface { return runtimeclass.New() }},
		{certificatesigner.ApprovalName, func() admission.Interface { return certificatesigner.NewApproval() }},
		{certificatesigner.SigningName, func() admission.Interface { return certificatesigner.NewSigning() }},
		{trustbundleattest.Name, func() admission.Interface { return trustbundleattest.New() }},
		{certificatesubject.Name, func() admission.Interface { return certificatesubject.New() }},
		{ingressclass.Name, func() admission.Interface { return ingressclass.New() }},
		{topologylabels.Name, func() admission.Interface { return topologylabels.New() }},
		{declaredfeatures.Name, func() admission.Interface { return declaredfeatures.New() }},
		{podresize.Name, func() admission.Interface { return podresize.New() }},
	}
}

type named struct {
	name string
	new  func() admission.Interface
}

// Register adds the in-tree plugins to those that a server may be configured
// with. The library's own (NamespaceLifecycle, policies, webhooks, quota) are
// registered by server.RegisterAllAdmissionPlugins and resourcequota.Register.
func Register(plugins *admission.Plugins, clock clock.Clock) {
	for _, p := range registered(clock) {
		plugins.Register(p.name, func(io.Reader) (admission.Interface, error) { return p.new(), nil })
	}
}

// Order returns the names of all plugins, the library's included, in upstream's
// order. Policies and webhooks see what the in-tree plugins have completed, and
// quota comes last, so that it charges only what nobody else refused.
func Order() []string {
	order := []string{lifecycle.PluginName}
	for _, p := range registered(nil) {
		order = append(order, p.name)
	}
	return append(order,
		mutatingpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingpolicy.PluginName,
		validatingwebhook.PluginName,
		resourcequota.PluginName,
	)
}
