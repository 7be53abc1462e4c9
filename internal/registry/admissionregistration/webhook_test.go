// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

// texts returns the messages of errors, with type, field and value.
func texts(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

func expect(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, texts(errs)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func goodRule() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"a"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
	}
}

func validatingWebhooks(change func(w *admissionv1.ValidatingWebhook)) *admissionv1.ValidatingWebhookConfiguration {
	c := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "config"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "w.k8s.io", ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://a.example")},
			Rules: []admissionv1.RuleWithOperations{goodRule()}, SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	change(&c.Webhooks[0])
	SetObjectDefaults_ValidatingWebhookConfiguration(c)
	return c
}

func TestWebhooks(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *admissionv1.ValidatingWebhook)
		want   []string
	}{
		"good": {change: func(*admissionv1.ValidatingWebhook) {}},
		"a name of two parts": {
			change: func(w *admissionv1.ValidatingWebhook) { w.Name = "w.k8s" },
			want:   []string{`webhooks[0].name: Invalid value: "w.k8s": should be a domain with at least three segments separated by dots`},
		},
		"unknown policies": {
			change: func(w *admissionv1.ValidatingWebhook) {
				w.FailurePolicy, w.MatchPolicy = new(admissionv1.FailurePolicyType("x")), new(admissionv1.MatchPolicyType("y"))
			},
			want: []string{
				`webhooks[0].failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"`,
				`webhooks[0].matchPolicy: Unsupported value: "y": supported values: "Equivalent", "Exact"`,
			},
		},
		"side effects": {
			change: func(w *admissionv1.ValidatingWebhook) { w.SideEffects = new(admissionv1.SideEffectClassSome) },
			want:   []string{`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`},
		},
		"no side effects": {
			change: func(w *admissionv1.ValidatingWebhook) { w.SideEffects = nil },
			want:   []string{"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"},
		},
		"too long": {
			change: func(w *admissionv1.ValidatingWebhook) { w.TimeoutSeconds = new(int32(31)) },
			want:   []string{"webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"},
		},
		"no client config": {
			change: func(w *admissionv1.ValidatingWebhook) { w.ClientConfig.URL = nil },
			want:   []string{"webhooks[0].clientConfig: Required value: exactly one of url or service is required"},
		},
		"plain http": {
			change: func(w *admissionv1.ValidatingWebhook) { w.ClientConfig.URL = new("http://a.example") },
			want:   []string{`webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`},
		},
		"a service without a name": {
			change: func(w *admissionv1.ValidatingWebhook) {
				w.ClientConfig = admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "n"}}
			},
			want: []string{"webhooks[0].clientConfig.service.namespace: Required value"},
		},
		"no versions": {
			change: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = nil },
			want:   []string{"webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"},
		},
		"unsupported versions, twice": {
			change: func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = []string{"v9", "v9"} },
			want: []string{
				`webhooks[0].admissionReviewVersions[1]: Invalid value: "v9": duplicate version`,
				`webhooks[0].admissionReviewVersions: Invalid value: ["v9","v9"]: must include at least one of v1, v1beta1`,
			},
		},
		"conditions": {
			change: func(w *admissionv1.ValidatingWebhook) {
				w.MatchConditions = []admissionv1.MatchCondition{{Name: "a", Expression: " "}, {Name: "a", Expression: "1"}, {Expression: "true"}, {Name: "?", Expression: "params.x == 1"}}
			},
			want: []string{
				"webhooks[0].matchConditions[0].expression: Required value",
				`webhooks[0].matchConditions[1].expression: Invalid value: "1": must evaluate to bool but got int`,
				`webhooks[0].matchConditions[1].name: Duplicate value: "a"`,
				"webhooks[0].matchConditions[2].name: Required value",
				"webhooks[0].matchConditions[3].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
				`webhooks[0].matchConditions[3].name: Invalid value: "?": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checktest.Errors(t.Context(), ValidatingWebhookConfiguration.Validate, validatingWebhooks(test.change)), test.want...)
		})
	}
}

func TestStaticNames(t *testing.T) {
	c := validatingWebhooks(func(*admissionv1.ValidatingWebhook) {})
	c.Name = "a.static.k8s.io"
	const problem = `names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`
	expect(t, checktest.Errors(t.Context(), ValidatingWebhookConfiguration.Validate, c), `metadata.name: Invalid value: "a.static.k8s.io": `+problem)
	expect(t, checktest.UpdateErrors(t.Context(), ValidatingWebhookConfiguration.ValidateUpdate, c, c))
	if got := ValidatingWebhookConfiguration.Warnings(t.Context(), c, c); !slices.Equal(got, []string{"metadata.name: " + problem}) {
		t.Errorf("%q", got)
	}
}

// TestStoredWebhooks checks that stored values that newer rules reject stay valid, and that valid
// ones cannot become invalid.
func TestStoredWebhooks(t *testing.T) {
	wrong := func(w *admissionv1.ValidatingWebhook) {
		w.SideEffects, w.AdmissionReviewVersions = new(admissionv1.SideEffectClassUnknown), []string{"v9"}
		w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"-"}}}}
		w.MatchConditions = []admissionv1.MatchCondition{{Name: "a", Expression: "1"}}
	}
	bad, good := validatingWebhooks(wrong), validatingWebhooks(func(*admissionv1.ValidatingWebhook) {})
	bad.Webhooks = append(bad.Webhooks, bad.Webhooks[0])
	expect(t, checktest.UpdateErrors(t.Context(), ValidatingWebhookConfiguration.ValidateUpdate, bad, bad))
	got := texts(checktest.UpdateErrors(t.Context(), ValidatingWebhookConfiguration.ValidateUpdate, bad, good))
	for _, field := range []string{"sideEffects", "admissionReviewVersions", "objectSelector", "matchConditions[0].expression", "webhooks[1].name: Duplicate"} {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, field) }) {
			t.Errorf("%s is not refused in %q", field, got)
		}
	}
}

func TestMutatingWebhooks(t *testing.T) {
	c := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{
		Name: "w.k8s.io", ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "s", Namespace: "n"}},
		Rules: []admissionv1.RuleWithOperations{goodRule()}, SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}}
	SetObjectDefaults_MutatingWebhookConfiguration(c)
	w := c.Webhooks[0]
	if *w.ReinvocationPolicy != admissionv1.NeverReinvocationPolicy || *w.ClientConfig.Service.Port != 443 || *w.Rules[0].Scope != admissionv1.AllScopes ||
		*w.FailurePolicy != admissionv1.Fail || *w.MatchPolicy != admissionv1.Equivalent || *w.TimeoutSeconds != 10 || w.NamespaceSelector == nil || w.ObjectSelector == nil {
		t.Errorf("defaults: %v", w)
	}
	expect(t, checktest.Errors(t.Context(), MutatingWebhookConfiguration.Validate, c))
	c.Webhooks[0].ReinvocationPolicy = new(admissionv1.ReinvocationPolicyType("Always"))
	expect(t, checktest.Errors(t.Context(), MutatingWebhookConfiguration.Validate, c), `webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`)
}

func TestWebhookGeneration(t *testing.T) {
	c := validatingWebhooks(func(*admissionv1.ValidatingWebhook) {})
	c.Generation = 7
	ValidatingWebhookConfiguration.Prepare(t.Context(), c, nil)
	if c.Generation != 1 {
		t.Errorf("a new one has generation %d", c.Generation)
	}
	same := c.DeepCopy()
	same.Labels = map[string]string{"a": "b"}
	ValidatingWebhookConfiguration.Prepare(t.Context(), same, c)
	changed := c.DeepCopy()
	changed.Webhooks = nil
	ValidatingWebhookConfiguration.Prepare(t.Context(), changed, c)
	if same.Generation != 1 || changed.Generation != 2 {
		t.Errorf("same %d, changed %d", same.Generation, changed.Generation)
	}
}

func TestRules(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *admissionv1.RuleWithOperations)
		want   []string
	}{
		"empty": {
			change: func(r *admissionv1.RuleWithOperations) { *r = admissionv1.RuleWithOperations{} },
			want:   []string{"rule.operations: Required value", "rule.apiGroups: Required value", "rule.apiVersions: Required value", "rule.resources: Required value"},
		},
		"wildcards with other items": {
			change: func(r *admissionv1.RuleWithOperations) {
				r.Operations = []admissionv1.OperationType{"*", "CREATE"}
				r.APIGroups, r.APIVersions, r.Resources = []string{"*", "a"}, []string{"*", ""}, []string{"*", "a"}
			},
			want: []string{
				`rule.operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`,
				`rule.apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups`,
				`rule.apiVersions: Invalid value: ["*",""]: if '*' is present, must not specify other API versions`,
				"rule.apiVersions[1]: Required value",
				`rule.resources: Invalid value: ["*","a"]: if '*' is present, must not specify other resources without subresources`,
			},
		},
		"unknown": {
			change: func(r *admissionv1.RuleWithOperations) {
				r.Operations, r.Scope = []admissionv1.OperationType{"GET"}, new(admissionv1.ScopeType("World"))
			},
			want: []string{
				`rule.operations[0]: Unsupported value: "GET": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
				`rule.scope: Unsupported value: "World": supported values: "*", "Cluster", "Namespaced"`,
			},
		},
		"subresources": {
			change: func(r *admissionv1.RuleWithOperations) {
				r.Resources = []string{"a/*", "a/x", "*/y", "b/y", "*/*", ""}
			},
			want: []string{
				`rule.resources[1]: Invalid value: "a/x": if 'a/*' is present, must not specify a/x`,
				`rule.resources[3]: Invalid value: "b/y": if '*/y' is present, must not specify b/y`,
				"rule.resources[5]: Required value",
				`rule.resources: Invalid value: ["a/*","a/x","*/y","b/y","*/*",""]: if '*/*' is present, must not specify other resources`,
			},
		},
		"all resources and a subresource": {change: func(r *admissionv1.RuleWithOperations) { r.Resources = []string{"*", "a/b"} }},
	} {
		t.Run(name, func(t *testing.T) {
			rule := goodRule()
			test.change(&rule)
			expect(t, check.Run(func(c *check.Checker) { validateRuleWithOperations(c, &rule, field.NewPath("rule")) }), test.want...)
		})
	}
}

func TestRuleWarnings(t *testing.T) {
	c := validatingWebhooks(func(w *admissionv1.ValidatingWebhook) {
		w.Rules = []admissionv1.RuleWithOperations{
			{Rule: admissionv1.Rule{APIGroups: []string{"*"}, Resources: []string{"tokenreviews"}}},
			{Rule: admissionv1.Rule{APIGroups: []string{"authentication.k8s.io", "authentication.k8s.io"}, Resources: []string{"tokenreviews", "pods"}}},
		}
	})
	want := []string{"webhooks[0].rules[1]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect"}
	if diff := cmp.Diff(want, ValidatingWebhookConfiguration.Warnings(t.Context(), c, nil)); diff != "" {
		t.Error(diff)
	}
}
