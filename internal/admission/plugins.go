// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission lists the in-tree admission plugins, which complete and
// validate requests after authorization and before they are stored.
//
// A plugin has a name and a constructor in one of the subpackages; plugins of one
// subject share a package. A plugin works on the types of k8s.io/api, gets its
// dependencies through the interfaces of
// k8s.io/apiserver/pkg/admission/initializer, and does not know the other
// plugins. To add one, add a line to registered.
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

	"github.com/kindred-project/kindred/internal/admission/certificates"
	"github.com/kindred-project/kindred/internal/admission/defaultclass"
	"github.com/kindred-project/kindred/internal/admission/limitranger"
	"github.com/kindred-project/kindred/internal/admission/noderestriction"
	"github.com/kindred-project/kindred/internal/admission/ownerrefs"
	"github.com/kindred-project/kindred/internal/admission/podgroup"
	"github.com/kindred-project/kindred/internal/admission/podsecurity"
	"github.com/kindred-project/kindred/internal/admission/podupdate"
	"github.com/kindred-project/kindred/internal/admission/priority"
	"github.com/kindred-project/kindred/internal/admission/runtimeclass"
	"github.com/kindred-project/kindred/internal/admission/serviceaccount"
	"github.com/kindred-project/kindred/internal/admission/storage"
	"github.com/kindred-project/kindred/internal/admission/taints"
	"github.com/kindred-project/kindred/internal/admission/topologylabels"
	"github.com/kindred-project/kindred/internal/admission/unserved"
)

// registered returns the plugins of the subpackages, in the order in which they
// run.
func registered(clock clock.Clock) []named {
	return []named{
		{limitranger.Name, func() admission.Interface { return limitranger.New(clock) }},
		{serviceaccount.Name, func() admission.Interface { return serviceaccount.New(clock) }},
		{noderestriction.Name, func() admission.Interface { return noderestriction.New() }},
		{taints.NodeName, func() admission.Interface { return taints.NewNode() }},
		{podsecurity.Name, func() admission.Interface { return podsecurity.New() }},
		{priority.Name, func() admission.Interface { return priority.New() }},
		{taints.TolerationsName, func() admission.Interface { return taints.NewTolerations() }},
		{defaultclass.StorageClassName, func() admission.Interface { return defaultclass.NewStorageClass() }},
		{storage.InUseName, func() admission.Interface { return storage.NewInUse() }},
		{podgroup.Name, func() admission.Interface { return podgroup.New() }},
		{ownerrefs.Name, func() admission.Interface { return ownerrefs.New() }},
		{storage.ResizeName, func() admission.Interface { return storage.NewResize() }},
		{runtimeclass.Name, func() admission.Interface { return runtimeclass.New() }},
		{certificates.ApprovalName, func() admission.Interface { return certificates.NewApproval() }},
		{certificates.SigningName, func() admission.Interface { return certificates.NewSigning() }},
		{certificates.TrustBundleName, func() admission.Interface { return certificates.NewTrustBundle() }},
		{certificates.SubjectName, func() admission.Interface { return certificates.NewSubject() }},
		{defaultclass.IngressClassName, func() admission.Interface { return defaultclass.NewIngressClass() }},
		{topologylabels.Name, func() admission.Interface { return topologylabels.New() }},
		{podupdate.DeclaredFeaturesName, func() admission.Interface { return podupdate.NewDeclaredFeatures() }},
		{podupdate.ResizeName, func() admission.Interface { return podupdate.NewResize() }},
		{unserved.Name, func() admission.Interface { return unserved.New() }},
	}
}

type named struct {
	name string
	new  func() admission.Interface
}

// Register makes the in-tree plugins available to a server. The plugins of k8s.io/apiserver
// (NamespaceLifecycle, policies, webhooks, quota) are registered by
// Policies.Register and resourcequota.Register.
func Register(plugins *admission.Plugins, clock clock.Clock) {
	for _, p := range registered(clock) {
		plugins.Register(p.name, func(io.Reader) (admission.Interface, error) { return p.new(), nil })
	}
}

// Order returns the names of all plugins, including those of k8s.io/apiserver, in
// upstream's order. Policies and webhooks see the objects that the in-tree plugins
// have completed. Quota comes last, so that it charges only requests that no other
// plugin refused.
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
