// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// mutatingPolicy returns the kind MutatingAdmissionPolicy: changes, written in CEL, of the objects
// of requests.
func mutatingPolicy(p params) generic.Kind[*admissionv1.MutatingAdmissionPolicy] {
	return generic.Kind[*admissionv1.MutatingAdmissionPolicy]{
		Name: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies",
		Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
		Categories: []string{"api-extensions"}, ClusterScoped: true,
		New:                    func() *admissionv1.MutatingAdmissionPolicy { return &admissionv1.MutatingAdmissionPolicy{} },
		NewList:                func() runtime.Object { return &admissionv1.MutatingAdmissionPolicyList{} },
		Spec:                   func(o *admissionv1.MutatingAdmissionPolicy) any { return &o.Spec },
		RequireResourceVersion: true,
		Validate: func(ctx context.Context, c *check.Checker, o *admissionv1.MutatingAdmissionPolicy) {
			if c.Passes(func() { validateMutatingPolicy(c, o, nil); validateName(c, o.Name) }) {
				p.mayRead(ctx, c, o.Spec.ParamKind, nil)
			}
		},
		ValidateUpdate: func(ctx context.Context, c *check.Checker, o, old *admissionv1.MutatingAdmissionPolicy) {
			if c.Passes(func() { validateMutatingPolicy(c, o, old) }) {
				p.mayRead(ctx, c, o.Spec.ParamKind, old.Spec.ParamKind)
			}
		},
		Warnings: func(_ context.Context, o, old *admissionv1.MutatingAdmissionPolicy) []string {
			return warnOfOldName(o.Name, old == nil)
		},
		Columns: []generic.Column[*admissionv1.MutatingAdmissionPolicy]{
			{Name: "Mutations", Type: "integer", Description: "Mutation indicates the number of mutations rules defined in this configuration",
				Cell: func(o *admissionv1.MutatingAdmissionPolicy) any { return len(o.Spec.Mutations) }},
			{Name: "ParamKind", Description: paramKindDoc,
				Cell: func(o *admissionv1.MutatingAdmissionPolicy) any { return paramKindText(o.Spec.ParamKind) }},
		},
	}
}

// mutatingPolicyBinding returns the kind MutatingAdmissionPolicyBinding: the resources that a
// policy applies to, and its parameters.
func mutatingPolicyBinding(p params) generic.Kind[*admissionv1.MutatingAdmissionPolicyBinding] {
	return generic.Kind[*admissionv1.MutatingAdmissionPolicyBinding]{
		Name: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings",
		Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
		Categories: []string{"api-extensions"}, ClusterScoped: true,
		New: func() *admissionv1.MutatingAdmissionPolicyBinding {
			return &admissionv1.MutatingAdmissionPolicyBinding{}
		},
		NewList:                func() runtime.Object { return &admissionv1.MutatingAdmissionPolicyBindingList{} },
		Spec:                   func(o *admissionv1.MutatingAdmissionPolicyBinding) any { return &o.Spec },
		RequireResourceVersion: true,
		Validate: func(ctx context.Context, c *check.Checker, o *admissionv1.MutatingAdmissionPolicyBinding) {
			if c.Passes(func() { validateMutatingBinding(c, &o.Spec, field.NewPath("spec")); validateName(c, o.Name) }) {
				p.mayReadBound(ctx, c, p.mutatingKind, o.Spec.PolicyName, o.Spec.ParamRef)
			}
		},
		ValidateUpdate: func(ctx context.Context, c *check.Checker, o, old *admissionv1.MutatingAdmissionPolicyBinding) {
			valid := c.Passes(func() { validateMutatingBinding(c, &o.Spec, field.NewPath("spec")) })
			if valid && (o.Spec.PolicyName != old.Spec.PolicyName || !equality.Semantic.DeepEqual(o.Spec.ParamRef, old.Spec.ParamRef)) {
				p.mayReadBound(ctx, c, p.mutatingKind, o.Spec.PolicyName, o.Spec.ParamRef)
			}
		},
		Warnings: func(_ context.Context, o, old *admissionv1.MutatingAdmissionPolicyBinding) []string {
			return warnOfOldName(o.Name, old == nil)
		},
		Columns: bindingColumns(
			func(o *admissionv1.MutatingAdmissionPolicyBinding) string { return o.Spec.PolicyName },
			func(o *admissionv1.MutatingAdmissionPolicyBinding) *admissionv1.ParamRef { return o.Spec.ParamRef }),
	}
}

// validateMutatingPolicy checks a policy; old is nil for a new one.
func validateMutatingPolicy(c *check.Checker, p, old *admissionv1.MutatingAdmissionPolicy) {
	spec, path := &p.Spec, field.NewPath("spec")
	composed, err := newCompositedCompiler()
	if err != nil {
		compilerFailed(c, path, err)
		return
	}
	e := expressions{hasParams: spec.ParamKind != nil, stored: storedInMutating(old), compiler: composed}
	requiredOneOf(c, path.Child("failurePolicy"), spec.FailurePolicy, failurePolicies...)
	validateParamKind(c, spec.ParamKind, path.Child("paramKind"))
	validateConstraints(c, spec.MatchConstraints, path.Child("matchConstraints"))
	validateMutable(c, spec.MatchConstraints, path.Child("matchConstraints"))
	if old == nil || !equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) || !equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions) {
		e.validateMatchConditions(c, spec.MatchConditions, path.Child("matchConditions"))
	}
	e.validateVariables(c, spec.Variables, path.Child("variables"))
	if len(spec.Mutations) == 0 {
		c.Required(path.Child("mutations"), "mutations must contain at least one item")
	}
	for i := range spec.Mutations {
		e.validateMutation(c, &spec.Mutations[i], path.Child("mutations").Index(i))
	}
	if spec.ReinvocationPolicy == "" {
		c.Required(path.Child("reinvocationPolicy"), "")
		return
	}
	check.OneOf(c, path.Child("reinvocationPolicy"), spec.ReinvocationPolicy, reinvocationPolicies...)
}

// storedInMutating returns the expressions of the stored policy; nil for a new one.
func storedInMutating(p *admissionv1.MutatingAdmissionPolicy) sets.Set[string] {
	if p == nil {
		return nil
	}
	stored := expressionsOf(p.Spec.MatchConditions, p.Spec.Variables)
	for _, m := range p.Spec.Mutations {
		if m.ApplyConfiguration != nil {
			stored.Insert(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			stored.Insert(m.JSONPatch.Expression)
		}
	}
	return stored
}

var patchTypes = []admissionv1.PatchType{admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch}

// validateMutation requires the patch of the given type and forbids the other.
func (e expressions) validateMutation(c *check.Checker, m *admissionv1.Mutation, path *field.Path) {
	apply, jsonPatch := path.Child("applyConfiguration"), path.Child("jsonPatch")
	switch m.PatchType {
	case "":
		c.Required(path.Child("patchType"), "")
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			c.Required(jsonPatch, "must be specified when patchType is JSONPatch")
		} else {
			expression := strings.TrimSpace(m.JSONPatch.Expression)
			e.validatePatch(c, &patch.JSONPatchCondition{Expression: expression}, m.JSONPatch.Expression, jsonPatch.Child("expression"))
		}
		if m.ApplyConfiguration != nil {
			c.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch")
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			c.Required(apply, "must be specified when patchType is ApplyConfiguration")
		} else {
			expression := strings.TrimSpace(m.ApplyConfiguration.Expression)
			e.validatePatch(c, &patch.ApplyConfigurationCondition{Expression: expression}, m.ApplyConfiguration.Expression, apply.Child("expression"))
		}
		if m.JSONPatch != nil {
			c.Invalid(jsonPatch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration")
		}
	default:
		c.Add(field.NotSupported(path.Child("patchType"), m.PatchType, patchTypes))
	}
}

func (e expressions) validatePatch(c *check.Checker, accessor plugincel.ExpressionAccessor, original string, path *field.Path) {
	if accessor.GetExpression() == "" {
		c.Required(path, "")
		return
	}
	declared := e.declared()
	declared.HasPatchTypes = true
	e.compile(c, accessor, declared, original, path)
}

func validateMutatingBinding(c *check.Checker, spec *admissionv1.MutatingAdmissionPolicyBindingSpec, path *field.Path) {
	c.RequiredDNSSubdomain(path.Child("policyName"), spec.PolicyName)
	validateParamRef(c, spec.ParamRef, path.Child("paramRef"))
	validateMatchResources(c, spec.MatchResources, path.Child("matchResources"))
	validateMutable(c, spec.MatchResources, path.Child("matchResources"))
}
