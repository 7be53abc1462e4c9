// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// validatingPolicy returns the kind ValidatingAdmissionPolicy: conditions in CEL that requests must
// meet.
func validatingPolicy(p params) generic.Kind[*admissionv1.ValidatingAdmissionPolicy] {
	return generic.Kind[*admissionv1.ValidatingAdmissionPolicy]{
		Name: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies",
		Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
		Categories: []string{"api-extensions"}, ClusterScoped: true,
		New:     func() *admissionv1.ValidatingAdmissionPolicy { return &admissionv1.ValidatingAdmissionPolicy{} },
		NewList: func() runtime.Object { return &admissionv1.ValidatingAdmissionPolicyList{} },
		Spec:    func(o *admissionv1.ValidatingAdmissionPolicy) any { return &o.Spec },
		Status:  func(o *admissionv1.ValidatingAdmissionPolicy) any { return &o.Status },
		StatusUpdate: generic.Update[*admissionv1.ValidatingAdmissionPolicy]{
			Prepare: func(_ context.Context, o, old *admissionv1.ValidatingAdmissionPolicy) {
				metav1.ResetObjectMetaForStatus(&o.ObjectMeta, &old.ObjectMeta)
			},
			Resets: []string{"metadata"},
			Validate: func(_ context.Context, c *check.Checker, o, _ *admissionv1.ValidatingAdmissionPolicy) {
				validatePolicyStatus(c, &o.Status, field.NewPath("status"))
			},
			Warnings: func(_ context.Context, o, _ *admissionv1.ValidatingAdmissionPolicy) []string {
				return warnOfName(o.Name)
			},
		},
		RequireResourceVersion: true,
		Validate: func(ctx context.Context, c *check.Checker, o *admissionv1.ValidatingAdmissionPolicy) {
			if c.Passes(func() { validateValidatingPolicy(c, o, nil); validateName(c, o.Name) }) {
				p.mayRead(ctx, c, o.Spec.ParamKind, nil)
			}
		},
		ValidateUpdate: func(ctx context.Context, c *check.Checker, o, old *admissionv1.ValidatingAdmissionPolicy) {
			if c.Passes(func() { validateValidatingPolicy(c, o, old) }) {
				p.mayRead(ctx, c, o.Spec.ParamKind, old.Spec.ParamKind)
			}
		},
		Warnings: func(_ context.Context, o, old *admissionv1.ValidatingAdmissionPolicy) []string {
			return warnOfOldName(o.Name, old == nil)
		},
		Columns: []generic.Column[*admissionv1.ValidatingAdmissionPolicy]{
			{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration",
				Cell: func(o *admissionv1.ValidatingAdmissionPolicy) any { return len(o.Spec.Validations) }},
			{Name: "ParamKind", Description: paramKindDoc,
				Cell: func(o *admissionv1.ValidatingAdmissionPolicy) any { return paramKindText(o.Spec.ParamKind) }},
		},
	}
}

// validatingPolicyBinding returns the kind ValidatingAdmissionPolicyBinding: the resources that a
// policy applies to, its parameters, and what happens if a validation fails.
func validatingPolicyBinding(p params) generic.Kind[*admissionv1.ValidatingAdmissionPolicyBinding] {
	return generic.Kind[*admissionv1.ValidatingAdmissionPolicyBinding]{
		Name: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings",
		Metadata:   generic.Metadata{AnyFinalizer: true, ValidateAsNew: true},
		Categories: []string{"api-extensions"}, ClusterScoped: true,
		New: func() *admissionv1.ValidatingAdmissionPolicyBinding {
			return &admissionv1.ValidatingAdmissionPolicyBinding{}
		},
		NewList:                func() runtime.Object { return &admissionv1.ValidatingAdmissionPolicyBindingList{} },
		Spec:                   func(o *admissionv1.ValidatingAdmissionPolicyBinding) any { return &o.Spec },
		RequireResourceVersion: true,
		Validate: func(ctx context.Context, c *check.Checker, o *admissionv1.ValidatingAdmissionPolicyBinding) {
			if c.Passes(func() { validateValidatingBinding(c, &o.Spec, field.NewPath("spec")); validateName(c, o.Name) }) {
				p.mayReadBound(ctx, c, p.validatingKind, o.Spec.PolicyName, o.Spec.ParamRef)
			}
		},
		ValidateUpdate: func(ctx context.Context, c *check.Checker, o, old *admissionv1.ValidatingAdmissionPolicyBinding) {
			valid := c.Passes(func() { validateValidatingBinding(c, &o.Spec, field.NewPath("spec")) })
			if valid && (o.Spec.PolicyName != old.Spec.PolicyName || !equality.Semantic.DeepEqual(o.Spec.ParamRef, old.Spec.ParamRef)) {
				p.mayReadBound(ctx, c, p.validatingKind, o.Spec.PolicyName, o.Spec.ParamRef)
			}
		},
		Warnings: func(_ context.Context, o, old *admissionv1.ValidatingAdmissionPolicyBinding) []string {
			return warnOfOldName(o.Name, old == nil)
		},
		Columns: bindingColumns(
			func(o *admissionv1.ValidatingAdmissionPolicyBinding) string { return o.Spec.PolicyName },
			func(o *admissionv1.ValidatingAdmissionPolicyBinding) *admissionv1.ParamRef { return o.Spec.ParamRef }),
	}
}

// warnOfOldName warns on updates only: validation refuses a new object with that name.
func warnOfOldName(name string, created bool) []string {
	if created {
		return nil
	}
	return warnOfName(name)
}

const paramKindDoc = "ParamKind specifies the kind of resources used to parameterize this policy"

func paramKindText(k *admissionv1.ParamKind) string {
	if k == nil {
		return orUnset("")
	}
	return k.APIVersion + "/" + k.Kind
}

func bindingColumns[T generic.Object](policy func(T) string, ref func(T) *admissionv1.ParamRef) []generic.Column[T] {
	return []generic.Column[T]{
		{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to", Cell: func(obj T) any { return policy(obj) }},
		{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configuration param", Cell: func(obj T) any { return paramRefText(ref(obj)) }},
	}
}

// paramRefText shows any namespace as *, because it does not know whether the parameters are
// namespaced.
func paramRefText(ref *admissionv1.ParamRef) string {
	switch {
	case ref == nil:
		return orUnset("")
	case ref.Name != "" && ref.Namespace != "":
		return ref.Namespace + "/" + ref.Name
	case ref.Name != "":
		return "*/" + ref.Name
	case ref.Selector != nil:
		return ref.Selector.String()
	}
	return orUnset("")
}
