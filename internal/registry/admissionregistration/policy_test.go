// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func goodConstraints() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: goodRule()}}}
}

func validatingPolicyWith(change func(s *admissionv1.ValidatingAdmissionPolicySpec)) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p.example.com"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: goodConstraints(), Validations: []admissionv1.Validation{{Expression: "object.a == 'x'"}},
		},
	}
	change(&p.Spec)
	SetObjectDefaults_ValidatingAdmissionPolicy(p)
	return p
}

func undeclared(expression, name string) string {
	at := strings.Index(expression, name)
	return "compilation failed: ERROR: <input>:1:" + string(rune('1'+at)) + ": undeclared reference to '" + name + "' (in container '')\n | " + expression + "\n | " + strings.Repeat(".", at) + "^"
}

func TestValidatingPolicies(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *admissionv1.ValidatingAdmissionPolicySpec)
		want   []string
	}{
		"good": {change: func(*admissionv1.ValidatingAdmissionPolicySpec) {}},
		"nothing": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) { *s = admissionv1.ValidatingAdmissionPolicySpec{} },
			want: []string{
				"spec.matchConstraints: Required value",
				"spec.validations: Required value: validations or auditAnnotations must contain at least one item",
				"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
			},
		},
		"no rules": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConstraints.ResourceRules = nil },
			want:   []string{"spec.matchConstraints.resourceRules: Required value"},
		},
		"resource names": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.MatchConstraints.ExcludeResourceRules = []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"a/b", "c", "c"}, RuleWithOperations: goodRule()}}
			},
			want: []string{
				`spec.matchConstraints.excludeResourceRules[0].resourceNames[0]: Invalid value: "a/b": may not contain '/'`,
				`spec.matchConstraints.excludeResourceRules[0].resourceNames[2]: Duplicate value: "c"`,
			},
		},
		"an invalid expression": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "object.x in [1, 2" },
			want: []string{"spec.validations[0].expression: Invalid value: \"object.x in [1, 2\": compilation failed: ERROR: <input>:1:18: Syntax error: mismatched input '<EOF>' expecting {']', ','}\n" +
				" | object.x in [1, 2\n | .................^"},
		},
		"not a bool": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "object.size() + 1" },
			want:   []string{`spec.validations[0].expression: Invalid value: "object.size() + 1": must evaluate to bool but got int`},
		},
		"params without a kind": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "params.a == 1" },
			want:   []string{`spec.validations[0].expression: Invalid value: "params.a == 1": ` + undeclared("params.a == 1", "params")},
		},
		"params": {change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.ParamKind = &admissionv1.ParamKind{APIVersion: "rules.example.com/v1", Kind: "Limit"}
			s.Validations[0] = admissionv1.Validation{Expression: "params.a == 1", MessageExpression: "string(params.b)"}
			s.MatchConditions = []admissionv1.MatchCondition{{Name: "a", Expression: "params.c == 'd'"}}
		}},
		"an invalid kind": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.ParamKind = &admissionv1.ParamKind{APIVersion: "a/b/c", Kind: "_"}
			},
			want: []string{
				`spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
				`spec.paramKind.kind: Invalid value: "_": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
			},
		},
		"variables": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.Variables = []admissionv1.Variable{{Name: "a", Expression: "1"}, {Name: "b", Expression: "variables.a + 1"}, {Name: "in", Expression: "1"}, {Expression: "1"}, {Name: "c"}}
				s.Validations[0].Expression = "variables.b == 2"
			},
			want: []string{
				`spec.variables[2].name: Invalid value: "in": must be a valid CEL identifier`,
				"spec.variables[3].name: Required value: name is not specified",
				"spec.variables[4].expression: Required value: expression is not specified",
			},
		},
		"an unknown variable": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.Validations[0].Expression = "variables.b == 2"
			},
			want: []string{`spec.validations[0].expression: Invalid value: "variables.b == 2": ` + undeclared("variables.b == 2", "variables")},
		},
		"messages and reasons": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.Validations = []admissionv1.Validation{
					{Expression: "true", Message: " ", MessageExpression: " "},
					{Expression: "true", Message: "a\nb", MessageExpression: "1", Reason: new(metav1.StatusReasonConflict)},
				}
			},
			want: []string{
				`spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified`,
				`spec.validations[0].message: Invalid value: " ": must be non-empty if specified`,
				`spec.validations[1].messageExpression: Invalid value: "1": must evaluate to string but got int`,
				`spec.validations[1].message: Invalid value: "a\nb": must not contain line breaks`,
				`spec.validations[1].reason: Unsupported value: "Conflict": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`,
			},
		},
		"audit annotations": {
			change: func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.Validations = nil
				s.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "a", ValueExpression: "'x'"}, {Key: "a", ValueExpression: " "}, {Key: "b", ValueExpression: "true"}}
			},
			want: []string{
				"spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
				`spec.auditAnnotations[1].key: Duplicate value: "a"`,
				`spec.auditAnnotations[2].valueExpression: Invalid value: "true": must evaluate to one of [string null_type] but got bool`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, check.Run(func(c *check.Checker) { validateValidatingPolicy(c, validatingPolicyWith(test.change), nil) }), test.want...)
		})
	}
}

// TestStoredConditions checks that match conditions are validated again only if they, or the
// paramKind, change.
func TestStoredConditions(t *testing.T) {
	old := validatingPolicyWith(func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.MatchConditions = []admissionv1.MatchCondition{{Name: "a", Expression: "params.a == 1"}}
	})
	changed := old.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	expect(t, check.Run(func(c *check.Checker) { validateValidatingPolicy(c, changed, old) }))
	changed.Spec.MatchConditions[0].Name = "b"
	expect(t, check.Run(func(c *check.Checker) { validateValidatingPolicy(c, changed, old) }), `spec.matchConditions[0].expression: Invalid value: "params.a == 1": `+undeclared("params.a == 1", "params"))
}

func TestPolicyStatus(t *testing.T) {
	status := admissionv1.ValidatingAdmissionPolicyStatus{TypeChecking: &admissionv1.TypeChecking{ExpressionWarnings: []admissionv1.ExpressionWarning{
		{FieldRef: "spec.validations[0].expression", Warning: "w"}, {FieldRef: "a["}, {Warning: "w"},
	}}}
	expect(t, check.Run(func(c *check.Checker) { validatePolicyStatus(c, &status, field.NewPath("status")) }),
		"status.typeChecking.expressionWarnings[1].warning: Required value",
		`status.typeChecking.expressionWarnings[1].fieldRef: Invalid value: "a[": invalid JSONPath: unterminated array`,
		"status.typeChecking.expressionWarnings[2].fieldRef: Required value")
}

func TestValidatingBindings(t *testing.T) {
	spec := admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName:        "-",
		ParamRef:          &admissionv1.ParamRef{Name: "a", Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionv1.ParameterNotFoundActionType("x"))},
		ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny, admissionv1.Warn, admissionv1.Warn, "x"},
	}
	expect(t, check.Run(func(c *check.Checker) { validateValidatingBinding(c, &spec, field.NewPath("spec")) }),
		`spec.policyName: Invalid value: "-": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		"spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
		"spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
		`spec.paramRef.parameterNotFoundAction: Unsupported value: "x": supported values: "Deny", "Allow"`,
		`spec.validationActions[2]: Duplicate value: "Warn"`,
		`spec.validationActions[3]: Unsupported value: "x": supported values: "Audit", "Deny", "Warn"`,
		`spec.validationActions: Invalid value: ["Deny","Warn","Warn","x"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)`)

	spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: &admissionv1.ParamRef{}}
	expect(t, check.Run(func(c *check.Checker) { validateValidatingBinding(c, &spec, field.NewPath("spec")) }),
		"spec.policyName: Required value",
		"spec.paramRef: Required value: one of name or selector must be specified",
		"spec.paramRef.parameterNotFoundAction: Required value",
		"spec.validationActions: Required value: at least one validation action is required")
}

func TestMutatingPolicies(t *testing.T) {
	apply := func(expression string) admissionv1.Mutation {
		return admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression}}
	}
	for name, test := range map[string]struct {
		change func(s *admissionv1.MutatingAdmissionPolicySpec)
		want   []string
	}{
		"good": {change: func(*admissionv1.MutatingAdmissionPolicySpec) {}},
		"a JSON patch": {change: func(s *admissionv1.MutatingAdmissionPolicySpec) {
			s.Variables = []admissionv1.Variable{{Name: "where", Expression: `"/spec/x"`}}
			s.Mutations = []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: variables.where, value: 1}]`}}}
		}},
		"nothing": {
			change: func(s *admissionv1.MutatingAdmissionPolicySpec) { *s = admissionv1.MutatingAdmissionPolicySpec{} },
			want: []string{
				"spec.matchConstraints: Required value",
				"spec.mutations: Required value: mutations must contain at least one item",
				"spec.reinvocationPolicy: Required value",
			},
		},
		"deletions": {
			change: func(s *admissionv1.MutatingAdmissionPolicySpec) {
				s.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Delete}
			},
			want: []string{`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`},
		},
		"both patches, and neither": {
			change: func(s *admissionv1.MutatingAdmissionPolicySpec) {
				both := apply("Object{}")
				both.JSONPatch = &admissionv1.JSONPatch{}
				s.Mutations = []admissionv1.Mutation{both, {PatchType: admissionv1.PatchTypeJSONPatch}, {PatchType: "x"}, {}, apply(" ")}
			},
			want: []string{
				`spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration`,
				"spec.mutations[1].jsonPatch: Required value: must be specified when patchType is JSONPatch",
				`spec.mutations[2].patchType: Unsupported value: "x": supported values: "ApplyConfiguration", "JSONPatch"`,
				"spec.mutations[3].patchType: Required value",
				"spec.mutations[4].applyConfiguration.expression: Required value",
			},
		},
		"not an object": {
			change: func(s *admissionv1.MutatingAdmissionPolicySpec) { s.Mutations[0] = apply("true") },
			want:   []string{`spec.mutations[0].applyConfiguration.expression: Invalid value: "true": must evaluate to Object but got bool`},
		},
		"reinvocation": {
			change: func(s *admissionv1.MutatingAdmissionPolicySpec) { s.ReinvocationPolicy = "x" },
			want:   []string{`spec.reinvocationPolicy: Unsupported value: "x": supported values: "IfNeeded", "Never"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &admissionv1.MutatingAdmissionPolicy{Spec: admissionv1.MutatingAdmissionPolicySpec{
				MatchConstraints: goodConstraints(), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
				Mutations: []admissionv1.Mutation{apply(`Object{metadata: Object.metadata{labels: {"a": "b"}}}`)},
			}}
			test.change(&p.Spec)
			SetObjectDefaults_MutatingAdmissionPolicy(p)
			expect(t, check.Run(func(c *check.Checker) { validateMutatingPolicy(c, p, nil) }), test.want...)
		})
	}
}

// asked is an authorizer that records requests and denies them.
type asked struct{ attributes []authorizer.Attributes }

func (a *asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.attributes = append(a.attributes, attributes)
	return authorizer.DecisionNoOpinion, "", nil
}

func (a *asked) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

func (a *asked) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

func TestBindingRequiresPermissionToReadParams(t *testing.T) {
	policy := validatingPolicyWith(func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	})
	client := fake.NewClientset(policy)
	client.Fake.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap").Kind}}}}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "me"})
	binding := func(policy string, ref *admissionv1.ParamRef) *admissionv1.ValidatingAdmissionPolicyBinding {
		ref.ParameterNotFoundAction = new(admissionv1.DenyAction)
		return &admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ParamRef: ref, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	}
	for name, test := range map[string]struct {
		binding              *admissionv1.ValidatingAdmissionPolicyBinding
		verb, resource, want string
	}{
		"a named object": {binding("p.example.com", &admissionv1.ParamRef{Name: "a", Namespace: "n"}), "get", "configmaps",
			`spec.paramRef: Forbidden: user &{me  [] map[]} does not have "get" permission on the object referenced by paramRef`},
		"selected objects": {binding("p.example.com", &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}}), "list", "configmaps",
			`spec.paramRef: Forbidden: user &{me  [] map[]} does not have "list" permission on the object referenced by paramRef`},
		"an unknown policy": {binding("none", &admissionv1.ParamRef{Name: "a"}), "get", "*",
			`spec.paramRef: Forbidden: unable to get policy none to determine minimum required permissions and user &{me  [] map[]} does not have "get" permission for all groups, versions and resources`},
	} {
		t.Run(name, func(t *testing.T) {
			refuses := &asked{}
			kind := validatingPolicyBinding(params{refuses, client})
			expect(t, checktest.Errors(ctx, kind.Validate, test.binding), test.want)
			if got := refuses.attributes[0]; got.GetVerb() != test.verb || got.GetResource() != test.resource || got.GetName() != test.binding.Spec.ParamRef.Name {
				t.Errorf("asked about %v", got)
			}
			expect(t, checktest.UpdateErrors(ctx, kind.ValidateUpdate, test.binding, test.binding.DeepCopy()))
			master := request.WithUser(t.Context(), &user.DefaultInfo{Groups: []string{user.SystemPrivilegedGroup}})
			expect(t, checktest.Errors(master, kind.Validate, test.binding))
		})
	}
}

func TestPolicyColumns(t *testing.T) {
	cells := func(binding *admissionv1.ValidatingAdmissionPolicyBinding) []any {
		var out []any
		for _, column := range validatingPolicyBinding(params{}).Columns {
			out = append(out, column.Cell(binding))
		}
		return out
	}
	for want, ref := range map[string]*admissionv1.ParamRef{
		"<unset>": nil, "n/a": {Name: "a", Namespace: "n"}, "*/a": {Name: "a"},
		"&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}": {Selector: &metav1.LabelSelector{}},
	} {
		got := cells(&admissionv1.ValidatingAdmissionPolicyBinding{Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ParamRef: ref}})
		if diff := cmp.Diff([]any{"p", want}, got); diff != "" {
			t.Error(diff)
		}
	}
	if got := paramKindText(&admissionv1.ParamKind{APIVersion: "a/v1", Kind: "B"}); got != "a/v1/B" {
		t.Error(got)
	}
}
