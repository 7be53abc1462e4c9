// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

const (
	maxAuditAnnotations = 20
	// The value that an expression makes is usually longer than the expression;
	// it may be 10 kB long.
	maxAuditExpressionLength = 5 * 1024
)

// refusalReasons are those that a failed validation may be answered with.
var refusalReasons = []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge}

// validateValidatingPolicy checks a policy; old is nil for a new one.
func validateValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	e := expressions{hasParams: spec.ParamKind != nil, stored: storedInValidating(old), compiler: plainCompiler()}
	if len(spec.Variables) > 0 {
		composed, err := composing()
		if err != nil {
			return compilerFailed(path, err)
		}
		e.compiler = composed
	}
	errs := requiredOneOf(spec.FailurePolicy, path.Child("failurePolicy"), failurePolicies)
	errs = append(errs, validateParamKind(spec.ParamKind, path.Child("paramKind"))...)
	errs = append(errs, validateConstraints(spec.MatchConstraints, path.Child("matchConstraints"))...)
	if old == nil || !equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) || !equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions) {
		errs = append(errs, e.validateMatchConditions(spec.MatchConditions, path.Child("matchConditions"))...)
	}
	errs = append(errs, e.validateVariables(spec.Variables, path.Child("variables"))...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const missing = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(path.Child("validations"), missing), field.Required(path.Child("auditAnnotations"), missing))
	}
	for i := range spec.Validations {
		errs = append(errs, e.validateValidation(&spec.Validations[i], path.Child("validations").Index(i))...)
	}
	return append(errs, e.validateAuditAnnotations(p.Name, spec.AuditAnnotations, path.Child("auditAnnotations"))...)
}

// expressionsOf are those of the parts that both kinds of policies have.
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

// storedInValidating are the expressions of a policy that was accepted before.
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

func (e expressions) validateValidation(v *admissionv1.Validation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("expression"); strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at, "expression is not specified"))
	} else {
		errs = append(errs, e.compile(&validating.ValidationCondition{Expression: v.Expression}, e.declared(), v.Expression, at)...)
	}
	errs = append(errs, e.validateMessageExpression(v.MessageExpression, path.Child("messageExpression"))...)
	message := strings.TrimSpace(v.Message)
	switch at := path.Child("message"); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(at, v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		errs = append(errs, field.Invalid(at, v.Message, "must not contain line breaks"))
	}
	return append(errs, oneOf(v.Reason, path.Child("reason"), refusalReasons)...)
}

// validateMessageExpression checks what makes the message. It cannot ask the
// authorizer, as the validation itself can.
func (e expressions) validateMessageExpression(expression string, path *field.Path) field.ErrorList {
	if expression == "" {
		return nil
	}
	if strings.TrimSpace(expression) == "" {
		return field.ErrorList{field.Invalid(path, expression, "must be non-empty if specified")}
	}
	declared := e.declared()
	declared.HasAuthorizer = false
	return e.compile(&validating.MessageExpressionCondition{MessageExpression: expression}, declared, expression, path)
}

func (e expressions) validateAuditAnnotations(policy string, annotations []admissionv1.AuditAnnotation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := sets.New[string]()
	for i, a := range annotations {
		at := path.Index(i)
		errs = append(errs, validateAuditKey(policy, a.Key, at.Child("key"))...)
		errs = append(errs, e.validateAuditValue(a.ValueExpression, at.Child("valueExpression"))...)
		if keys.Has(a.Key) {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys.Insert(a.Key)
	}
	return errs
}

// validateAuditKey wants a key that, behind the policy's name, is qualified.
func validateAuditKey(policy, key string, path *field.Path) field.ErrorList {
	if policy == "" {
		return field.ErrorList{field.Invalid(path, key, "requires metadata.name be non-empty")}
	}
	return qualified(policy+"/"+key, path)
}

func (e expressions) validateAuditValue(expression string, path *field.Path) field.ErrorList {
	trimmed := strings.TrimSpace(expression)
	switch {
	case trimmed == "":
		return field.ErrorList{field.Required(path, "valueExpression is not specified")}
	case len(trimmed) > maxAuditExpressionLength:
		return field.ErrorList{field.Required(path, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpressionLength))}
	}
	result := e.compiler.CompileCELExpression(&validating.AuditAnnotationCondition{ValueExpression: trimmed}, e.declared(), e.environment(expression))
	return generic.InvalidExpression(path, expression, result.Error)
}

// validatePolicyStatus checks what the controller found out about the types in a
// policy's expressions.
func validatePolicyStatus(status *admissionv1.ValidatingAdmissionPolicyStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if status.TypeChecking != nil {
		warnings := path.Child("typeChecking", "expressionWarnings")
		for i, w := range status.TypeChecking.ExpressionWarnings {
			if w.Warning == "" {
				errs = append(errs, field.Required(warnings.Index(i).Child("warning"), ""))
			}
			errs = append(errs, validateFieldRef(w.FieldRef, warnings.Index(i).Child("fieldRef"))...)
		}
	}
	return append(errs, metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
}

func validateFieldRef(ref string, path *field.Path) field.ErrorList {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		return field.ErrorList{field.Invalid(path, ref, fmt.Sprintf("invalid JSONPath: %v", err))}
	}
	return nil
}

var validationActions = []admissionv1.ValidationAction{admissionv1.Audit, admissionv1.Deny, admissionv1.Warn}

func validateValidatingBinding(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.PolicyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), "").MarkCoveredByDeclarative())
	} else {
		errs = append(errs, invalid(path.Child("policyName"), spec.PolicyName, apivalidation.NameIsDNSSubdomain(spec.PolicyName, false))...)
	}
	errs = append(errs, validateParamRef(spec.ParamRef, path.Child("paramRef"))...)
	errs = append(errs, validateMatchResources(spec.MatchResources, path.Child("matchResources"))...)
	return append(errs, validateActions(spec.ValidationActions, path.Child("validationActions"))...)
}

func validateActions(actions []admissionv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "at least one validation action is required").MarkCoveredByDeclarative()}
	}
	var errs field.ErrorList
	for i := range actions {
		errs = append(errs, oneOf(&actions[i], path.Index(i), validationActions)...)
		if slices.Contains(actions[:i], actions[i]) {
			errs = append(errs, field.Duplicate(path.Index(i), actions[i]))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
