// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// IngressClass names the controller that serves Ingresses of this class.
var IngressClass = generic.Kind[*networkingv1.IngressClass]{
	Name: "IngressClass", Plural: "ingressclasses", ClusterScoped: true,
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *networkingv1.IngressClass { return &networkingv1.IngressClass{} },
	NewList:  func() runtime.Object { return &networkingv1.IngressClassList{} },
	Spec:     func(c *networkingv1.IngressClass) any { return &c.Spec },
	Validate: func(_ context.Context, c *check.Checker, class *networkingv1.IngressClass) {
		validateIngressClassSpec(c, &class.Spec, field.NewPath("spec"))
	},
	ValidateUpdate: validateIngressClassUpdate,
	Table:          generic.Table[*networkingv1.IngressClass]{NameCell: ingressClassName},
	Columns: []generic.Column[*networkingv1.IngressClass]{
		{Name: "Controller", Description: "Controller that is responsible for handling this class", Cell: func(c *networkingv1.IngressClass) any { return c.Spec.Controller }},
		{Name: "Parameters", Description: "A reference to a resource with additional parameters", Cell: parametersText},
	},
}

// SetDefaults_IngressClass defaults the scope of parameters to Cluster.
func SetDefaults_IngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil && p.Scope == nil {
		p.Scope = new(networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func ingressClassName(c *networkingv1.IngressClass) any {
	if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		return c.Name + " (default)"
	}
	return c.Name
}

func parametersText(c *networkingv1.IngressClass) any {
	p := c.Spec.Parameters
	if p == nil {
		return generic.OrNone("")
	}
	kind := p.Kind
	if p.APIGroup != nil {
		kind += "." + *p.APIGroup
	}
	return kind + "/" + p.Name
}

func validateIngressClassUpdate(_ context.Context, c *check.Checker, class, old *networkingv1.IngressClass) {
	path := field.NewPath("spec")
	c.Immutable(path.Child("controller"), class.Spec.Controller, old.Spec.Controller)
	validateIngressClassSpec(c, &class.Spec, path)
}

func validateIngressClassSpec(c *check.Checker, spec *networkingv1.IngressClassSpec, path *field.Path) {
	const longest = 250
	controller := path.Child("controller")
	c.MaxBytes(controller, spec.Controller, longest)
	c.Add(utilvalidation.IsDomainPrefixedPath(controller, spec.Controller)...)
	if spec.Parameters != nil {
		validateParameters(c, spec.Parameters, path.Child("parameters"))
	}
}

func validateParameters(c *check.Checker, p *networkingv1.IngressClassParametersReference, path *field.Path) {
	c.OptionalDNSSubdomain(path.Child("apiGroup"), p.APIGroup)
	validateDeclaredSegment(c, p.Kind, path.Child("kind"))
	validateDeclaredSegment(c, p.Name, path.Child("name"))
	if p.Scope == nil {
		c.Required(path.Child("scope"), "")
		return
	}
	namespace := path.Child("namespace")
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			c.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'")
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			c.Required(namespace, "`parameters.scope` is set to 'Namespace'")
			return
		}
		c.Invalid(namespace, *p.Namespace, apivalidation.ValidateNamespaceName(*p.Namespace, false)...)
	default:
		check.OneOf(c, path.Child("scope"), *p.Scope,
			networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)
	}
}

// validateDeclaredSegment is validateSegment for a field that k8s.io/api declares as required.
func validateDeclaredSegment(c *check.Checker, name string, path *field.Path) {
	if c.Declared().NonEmpty(path, name) {
		validateSegment(c, name, path)
	}
}
