// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kindred-project/kindred/internal/registry/check"
)

const (
	maxAuditAnnotations = 20
	// The value of an expression is usually longer than the expression, and may have 10 kB.
	maxAuditExpressionLength = 5 * 1024
)

// refusalReasons are the supported reasons of a failed validation.
var refusalReasons = []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge}

// validateValidatingPolicy checks a policy; old is nil for a new one.
func validateValidatingPolicy(c *check.Checker, p, old *admissionv1.ValidatingAdmissionPolicy) {
	spec, path := &p.Spec, field.NewPath("spec")
	e := expressions{hasParams: spec.ParamKind != nil, stored: storedInValidating(old), compiler: plainCompiler()}
	if len(spec.Variables) > 0 {
		composed, err := newCompositedCompiler()
		if err != nil {
			compilerFailed(c, path, err)
			return
		}
		e.compiler = composed
	}
	requiredOneOf(c, path.Child("failurePolicy"), spec.FailurePolicy, failurePolicies...)
	validateParamKind(c, spec.ParamKind, path.Child("paramKind"))
	validateConstraints(c, spec.MatchConstraints, path.Child("matchConstraints"))
	if old == nil || !equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) || !equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions) {
		e.validateMatchConditions(c, spec.MatchConditions, path.Child("matchConditions"))
	}
	e.validateVariables(c, spec.Variables, path.Child("variables"))
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const missing = "validations or auditAnnotations must contain at least one item"
		c.Required(path.Child("validations"), missing)
		c.Required(path.Child("auditAnnotations"), missing)
		return
	}
	for i := range spec.Validations {
		e.validateValidation(c, &spec.Validations[i], path.Child("validations").Index(i))
	}
	e.validateAuditAnnotations(c, p.Name, spec.AuditAnnotations, path.Child("auditAnnotations"))
}

// expressionsOf returns the expressions of the fields that both kinds of policies have.
func expressionsOf(conditions []admissionv1.MatchCondition, variables []admissionv1.Variable) sets.Set[string] {
	expressions := sets.New[string]()
	for _, c := range conditions {
		expressions.Insert(c.Expression)
	}
	for _, v := range variables {
		expressions.Insert(v.Expression)
	}
	return expressions
}

// storedInValidating returns the expressions of the stored policy; nil for a new one.
func storedInValidating(p *admissionv1.ValidatingAdmissionPolicy) sets.Set[string] {
	if p == nil {
		return nil
	}
	stored := expressionsOf(p.Spec.MatchConditions, p.Spec.Variables)
	for _, v := range p.Spec.Validations {
		stored.Insert(v.Expression, v.MessageExpression)
	}
	for _, a := range p.Spec.AuditAnnotations {
		stored.Insert(a.ValueExpression)
	}
	return stored
}

func (e expressions) validateValidation(c *check.Checker, v *admissionv1.Validation, path *field.Path) {
	if at := path.Child("expression"); strings.TrimSpace(v.Expression) == "" {
		c.Required(at, "expression is not specified")
	} else {
		e.compile(c, &validating.ValidationCondition{Expression: v.Expression}, e.declared(), v.Expression, at)
	}
	e.validateMessageExpression(c, v.MessageExpression, path.Child("messageExpression"))
	message := strings.TrimSpace(v.Message)
	switch at := path.Child("message"); {
	case v.Message != "" && message == "":
		c.Invalid(at, v.Message, "must be non-empty if specified")
	case strings.ContainsAny(message, "\n\r"):
		c.Invalid(at, v.Message, "must not contain line breaks")
	}
	check.OptionalOneOf(c, path.Child("reason"), v.Reason, refusalReasons...)
}

// validateMessageExpression checks the expression of the message, which, unlike the validation,
// cannot use the authorizer.
func (e expressions) validateMessageExpression(c *check.Checker, expression string, path *field.Path) {
	if expression == "" {
		return
	}
	if strings.TrimSpace(expression) == "" {
		c.Invalid(path, expression, "must be non-empty if specified")
		return
	}
	declared := e.declared()
	declared.HasAuthorizer = false
	e.compile(c, &validating.MessageExpressionCondition{MessageExpression: expression}, declared, expression, path)
}

func (e expressions) validateAuditAnnotations(c *check.Checker, policy string, annotations []admissionv1.AuditAnnotation, path *field.Path) {
	if len(annotations) > maxAuditAnnotations {
		c.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations))
	}
	keys := sets.New[string]()
	for i, a := range annotations {
		at := path.Index(i)
		validateAuditKey(c, policy, a.Key, at.Child("key"))
		e.validateAuditValue(c, a.ValueExpression, at.Child("valueExpression"))
		check.Unique(c, at.Child("key"), keys, a.Key)
	}
}

// validateAuditKey requires a key that is a qualified name after the prefix of the policy's name.
func validateAuditKey(c *check.Checker, policy, key string, path *field.Path) {
	if policy == "" {
		c.Invalid(path, key, "requires metadata.name be non-empty")
		return
	}
	qualified(c, policy+"/"+key, path)
}

func (e expressions) validateAuditValue(c *check.Checker, expression string, path *field.Path) {
	trimmed := strings.TrimSpace(expression)
	switch {
	case trimmed == "":
		c.Required(path, "valueExpression is not specified")
		return
	case len(trimmed) > maxAuditExpressionLength:
		c.Required(path, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpressionLength))
		return
	}
	result := e.compiler.CompileCELExpression(&validating.AuditAnnotationCondition{ValueExpression: trimmed}, e.declared(), e.environment(expression))
	c.Expression(path, expression, result.Error)
}

// validatePolicyStatus checks the results of type checking, which the policy's controller writes.
func validatePolicyStatus(c *check.Checker, status *admissionv1.ValidatingAdmissionPolicyStatus, path *field.Path) {
	if status.TypeChecking != nil {
		warnings := path.Child("typeChecking", "expressionWarnings")
		for i, w := range status.TypeChecking.ExpressionWarnings {
			if w.Warning == "" {
				c.Required(warnings.Index(i).Child("warning"), "")
			}
			validateFieldRef(c, w.FieldRef, warnings.Index(i).Child("fieldRef"))
		}
	}
	c.Add(metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
}

func validateFieldRef(c *check.Checker, ref string, path *field.Path) {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		c.Required(path, "")
		return
	}
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		c.Invalid(path, ref, fmt.Sprintf("invalid JSONPath: %v", err))
	}
}

var validationActions = []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Deny, admissionv1.Warn}

func validateValidatingBinding(c *check.Checker, spec *admissionv1.ValidatingAdmissionPolicyBindingSpec, path *field.Path) {
	if spec.PolicyName == "" {
		c.Declared().Required(path.Child("policyName"), "")
	} else {
		c.DNSSubdomain(path.Child("policyName"), spec.PolicyName)
	}
	validateParamRef(c, spec.ParamRef, path.Child("paramRef"))
	validateMatchResources(c, spec.MatchResources, path.Child("matchResources"))
	validateActions(c, spec.ValidationActions, path.Child("validationActions"))
}

func validateActions(c *check.Checker, actions []admissionv1.ValidationAction, path *field.Path) {
	if len(actions) == 0 {
		c.Declared().Required(path, "at least one validation action is required")
		return
	}
	for i := range actions {
		check.OneOf(c, path.Index(i), actions[i], validationActions...)
		if slices.Contains(actions[:i], actions[i]) {
			c.Duplicate(path.Index(i), actions[i])
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		c.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)")
	}
}
