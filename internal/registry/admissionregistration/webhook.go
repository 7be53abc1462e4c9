// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// ValidatingWebhookConfiguration configures webhooks that can reject requests.
var ValidatingWebhookConfiguration = generic.Kind[*admissionv1.ValidatingWebhookConfiguration]{
	Name: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations",
	Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
	Categories: []string{"api-extensions"}, ClusterScoped: true,
	New: func() *admissionv1.ValidatingWebhookConfiguration {
		return &admissionv1.ValidatingWebhookConfiguration{}
	},
	NewList:                func() runtime.Object { return &admissionv1.ValidatingWebhookConfigurationList{} },
	RequireResourceVersion: true,
	Prepare: func(_ context.Context, c, old *admissionv1.ValidatingWebhookConfiguration) {
		setGeneration(&c.ObjectMeta, old == nil, func() bool { return reflect.DeepEqual(c.Webhooks, old.Webhooks) })
	},
	Validate: func(_ context.Context, c *check.Checker, configuration *admissionv1.ValidatingWebhookConfiguration) {
		validateHooks(c, validatingHooks(configuration), strict())
		validateName(c, configuration.Name)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, configuration, old *admissionv1.ValidatingWebhookConfiguration) {
		hooks, before := validatingHooks(configuration), validatingHooks(old)
		validateHooks(c, hooks, concessions(hooks, before))
	},
	Warnings: func(_ context.Context, c, old *admissionv1.ValidatingWebhookConfiguration) []string {
		return warnOfHooks(c.Name, old == nil, validatingHooks(c))
	},
	Columns: webhookColumn(func(c *admissionv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
}

// MutatingWebhookConfiguration configures webhooks that can change the objects of requests, or
// reject requests.
var MutatingWebhookConfiguration = generic.Kind[*admissionv1.MutatingWebhookConfiguration]{
	Name: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations",
	Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
	Categories: []string{"api-extensions"}, ClusterScoped: true,
	New:                    func() *admissionv1.MutatingWebhookConfiguration { return &admissionv1.MutatingWebhookConfiguration{} },
	NewList:                func() runtime.Object { return &admissionv1.MutatingWebhookConfigurationList{} },
	RequireResourceVersion: true,
	Prepare: func(_ context.Context, c, old *admissionv1.MutatingWebhookConfiguration) {
		setGeneration(&c.ObjectMeta, old == nil, func() bool { return reflect.DeepEqual(c.Webhooks, old.Webhooks) })
	},
	Validate: func(_ context.Context, c *check.Checker, configuration *admissionv1.MutatingWebhookConfiguration) {
		validateHooks(c, configuration.Webhooks, strict())
		validateName(c, configuration.Name)
	},
	ValidateUpdate: func(_ context.Context, c *check.Checker, configuration, old *admissionv1.MutatingWebhookConfiguration) {
		validateHooks(c, configuration.Webhooks, concessions(configuration.Webhooks, old.Webhooks))
	},
	Warnings: func(_ context.Context, c, old *admissionv1.MutatingWebhookConfiguration) []string {
		return warnOfHooks(c.Name, old == nil, c.Webhooks)
	},
	Columns: webhookColumn(func(c *admissionv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
}

// validatingHooks converts validating webhooks to mutating ones, so that the same rules check both.
// A mutating webhook has all fields of a validating one, and a reinvocation policy.
func validatingHooks(c *admissionv1.ValidatingWebhookConfiguration) []admissionv1.MutatingWebhook {
	hooks := make([]admissionv1.MutatingWebhook, len(c.Webhooks))
	for i, w := range c.Webhooks {
		hooks[i] = admissionv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}
	}
	return hooks
}

// setGeneration increments the generation if the webhooks change. A configuration has no spec.
func setGeneration(meta *metav1.ObjectMeta, created bool, same func() bool) {
	switch {
	case created:
		meta.Generation = 1
	case !same():
		meta.Generation++ // the API server has copied the stored generation
	}
}

func webhookColumn[T generic.Object](count func(T) int) []generic.Column[T] {
	return []generic.Column[T]{{
		Name: "Webhooks", Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration",
		Cell: func(obj T) any { return count(obj) },
	}}
}

// warnOfHooks warns about rules for resources that webhooks do not apply to.
func warnOfHooks(name string, created bool, hooks []admissionv1.MutatingWebhook) []string {
	var out []string
	if !created {
		out = warnOfName(name)
	}
	path := field.NewPath("webhooks")
	for i, h := range hooks {
		for j := range h.Rules {
			for _, resource := range excludedIn(&h.Rules[j].Rule) {
				out = append(out, fmt.Sprintf("%s: %s is excluded from admission webhooks; this rule will have no effect", path.Index(i).Child("rules").Index(j), resource))
			}
		}
	}
	return out
}

// excludedIn returns the excluded resources that a rule names. A rule with a wildcard also matches
// other resources.
func excludedIn(r *admissionv1.Rule) []schema.GroupResource {
	if slices.Contains(r.APIGroups, wildcard) || slices.Contains(r.Resources, wildcard) {
		return nil
	}
	var out []schema.GroupResource
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			named := schema.GroupResource{Group: group, Resource: resource}
			if slices.Contains(excluded, named) && !slices.Contains(out, named) {
				out = append(out, named)
			}
		}
	}
	return out
}
