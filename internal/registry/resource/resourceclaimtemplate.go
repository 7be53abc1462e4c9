// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/core/volumespec"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// resourceClaimTemplate returns the kind ResourceClaimTemplate, from which the claims of pods are
// created. It is immutable.
func resourceClaimTemplate(namespaces corev1client.NamespacesGetter) generic.Resource {
	admins := admins{namespaces}
	return generic.Kind[*resourcev1.ResourceClaimTemplate]{
		Name: "ResourceClaimTemplate", Plural: "resourceclaimtemplates",
		New:      func() *resourcev1.ResourceClaimTemplate { return &resourcev1.ResourceClaimTemplate{} },
		NewList:  func() runtime.Object { return &resourcev1.ResourceClaimTemplateList{} },
		Metadata: generic.Metadata{ValidateAsNew: true},
		Prepare:  func(_ context.Context, t, _ *resourcev1.ResourceClaimTemplate) { dropAlphaClaim(&t.Spec.Spec) },
		Validate: func(ctx context.Context, c *check.Checker, t *resourcev1.ResourceClaimTemplate) {
			admins.mayRequest(ctx, c, t.Spec.Spec.Devices.Requests, t.Namespace)
			validateTemplate(c, t)
		},
		ValidateUpdate: func(_ context.Context, c *check.Checker, t, old *resourcev1.ResourceClaimTemplate) {
			validateTemplate(c, t)
			c.Immutable(specPath, t.Spec, old.Spec)
		},
		Deletion: generic.Deletion[*resourcev1.ResourceClaimTemplate]{ReturnObject: true},
	}
}

func validateTemplate(c *check.Checker, t *resourcev1.ResourceClaimTemplate) {
	volumespec.ValidateTemplateMeta(c, &t.Spec.ObjectMeta, specPath.Child("metadata"))
	validateClaim(c, &t.Spec.Spec.Devices, specPath.Child("spec", "devices"))
}
