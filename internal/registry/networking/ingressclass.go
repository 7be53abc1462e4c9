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

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// IngressClass names the controller that serves Ingresses of this class.
var IngressClass = generic.Kind[*networkingv1.IngressClass]{
	Name: "IngressClass", Plural: "ingressclasses", ClusterScoped: true,
	Metadata: generic.Metadata{ValidateAsNew: true},
	New:      func() *networkingv1.IngressClass { return &networkingv1.IngressClass{} },
	NewList:  func() runtime.Object { return &networkingv1.IngressClassList{} },
	Spec:     func(c *networkingv1.IngressClass) any { return &c.Spec },
	Validate: func(_ context.Context, c *networkingv1.IngressClass) field.ErrorList {
		return validateIngressClassSpec(&c.Spec, field.NewPath("spec"))
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

func validateIngressClassUpdate(_ context.Context, c, old *networkingv1.IngressClass) field.ErrorList {
	path := field.NewPath("spec")
	errs := apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, path.Child("controller"))
	return append(errs, validateIngressClassSpec(&c.Spec, path)...)
}

func validateIngressClassSpec(spec *networkingv1.IngressClassSpec, path *field.Path) field.ErrorList {
	const longest = 250
	controller := path.Child("controller")
	var errs field.ErrorList
	if len(spec.Controller) > longest {
		errs = append(errs, field.TooLong(controller, "", longest))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(controller, spec.Controller)...)
	if spec.Parameters == nil {
		return errs
	}
	return append(errs, validateParameters(spec.Parameters, path.Child("parameters"))...)
}

func validateParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	errs := validateAPIGroup(p.APIGroup, path)
	errs = append(errs, declaredSegment(path.Child("kind"), p.Kind)...)
	errs = append(errs, declaredSegment(path.Child("name"), p.Name)...)
	if p.Scope == nil {
		return append(errs, field.Required(path.Child("scope"), ""))
	}
	namespace := path.Child("namespace")
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
		}
		errs = append(errs, generic.Invalid(namespace, *p.Namespace, apivalidation.ValidateNamespaceName(*p.Namespace, false))...)
	default:
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope, []string{
			networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace}))
	}
	return errs
}

// declaredSegment is segment for a field that k8s.io/api declares as required.
func declaredSegment(path *field.Path, name string) field.ErrorList {
	errs := segment(path, name)
	if name == "" {
		return errs.MarkCoveredByDeclarative()
	}
	return errs
}
