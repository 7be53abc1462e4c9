// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/check/checktest"
)

func expect(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func schemaWith(change func(s *flowcontrolv1.FlowSchemaSpec)) *flowcontrolv1.FlowSchema {
	f := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "level"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "u"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"/", "/a/*"}}},
			}},
		},
	}
	SetObjectDefaults_FlowSchema(f)
	change(&f.Spec)
	return f
}

func TestFlowSchemas(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *flowcontrolv1.FlowSchemaSpec)
		want   []string
	}{
		"good": {change: func(*flowcontrolv1.FlowSchemaSpec) {}},
		"negative precedence": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) { s.MatchingPrecedence = -1 },
			want:   []string{"spec.matchingPrecedence: Invalid value: -1: must be a positive value"},
		},
		"too high": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) { s.MatchingPrecedence = 10001 },
			want:   []string{"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"},
		},
		"precedence of the exempt schema": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) { s.MatchingPrecedence = 1 },
			want:   []string{"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"},
		},
		"a method": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) {
				s.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: "x"}
			},
			want: []string{`spec.distinguisherMethod.type: Unsupported value: {"Type":"x"}: supported values: "ByNamespace", "ByUser"`},
		},
		"no level": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) { s.PriorityLevelConfiguration.Name = "" },
			want:   []string{"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"},
		},
		"an empty rule": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) { s.Rules = []flowcontrolv1.PolicyRulesWithSubjects{{}} },
			want: []string{
				"spec.rules[0].subjects: Required value: subjects must contain at least one value",
				"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
			},
		},
		"subjects": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) {
				s.Rules[0].Subjects = []flowcontrolv1.Subject{
					{Kind: "x"},
					{Kind: flowcontrolv1.SubjectKindGroup, User: &flowcontrolv1.UserSubject{}},
					{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{}, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{}},
					{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{}},
					{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Name: "*", Namespace: "n"}},
				}
			},
			want: []string{
				`spec.rules[0].subjects[0].kind: Unsupported value: "x": supported values: "Group", "ServiceAccount", "User"`,
				"spec.rules[0].subjects[1].group: Required value: group is required when subject kind is 'Group'",
				"spec.rules[0].subjects[1].user: Forbidden: user is forbidden when subject kind is not 'User'",
				"spec.rules[0].subjects[2].user.name: Required value",
				"spec.rules[0].subjects[2].serviceAccount: Forbidden: serviceAccount is forbidden when subject kind is not 'ServiceAccount'",
				"spec.rules[0].subjects[3].serviceAccount.name: Required value",
				"spec.rules[0].subjects[3].serviceAccount.namespace: Required value: must specify namespace for service account",
			},
		},
		"URLs": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) {
				s.Rules[0].NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{
					{Verbs: []string{"get", "look"}, NonResourceURLs: []string{"", "a", "/a b", "/a//b", "/a*", "/*/*"}},
					{NonResourceURLs: []string{"*", "/a"}},
				}
			},
			want: []string{
				`spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["get","look"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "": must not be empty`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "a": must start with slash`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: "/a b": must not contain white-space`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: "/a//b": must not contain double slash`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[4]: Invalid value: "/a*": wildcard can only do suffix matching`,
				`spec.rules[0].nonResourceRules[0].nonResourceURLs[5]: Invalid value: "/*/*": wildcard can only do suffix matching`,
				"spec.rules[0].nonResourceRules[1].verbs: Required value: verbs must contain at least one value",
				`spec.rules[0].nonResourceRules[1].nonResourceURLs: Invalid value: ["*","/a"]: if '*' is present, must not specify other non-resource URLs`,
			},
		},
		"resources": {
			change: func(s *flowcontrolv1.FlowSchemaSpec) {
				s.Rules[0].ResourceRules = []flowcontrolv1.ResourcePolicyRule{
					{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ClusterScope: true},
					{Verbs: []string{"*", "get"}, APIGroups: []string{"*", "a"}, Resources: []string{"*", "b"}, Namespaces: []string{"*", "c"}},
					{Verbs: []string{"get"}, Namespaces: []string{"_"}},
					{Verbs: []string{"get"}, APIGroups: []string{"a"}, Resources: []string{"b"}},
				}
			},
			want: []string{
				`spec.rules[0].resourceRules[1].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs`,
				`spec.rules[0].resourceRules[1].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other api groups`,
				`spec.rules[0].resourceRules[1].resources: Invalid value: ["*","b"]: if '*' is present, must not specify other resources`,
				`spec.rules[0].resourceRules[1].namespaces: Invalid value: ["*","c"]: if '*' is present, must not specify other namespaces`,
				"spec.rules[0].resourceRules[2].apiGroups: Required value: resource rules must supply at least one api group",
				"spec.rules[0].resourceRules[2].resources: Required value: resource rules must supply at least one resource",
				`spec.rules[0].resourceRules[2].namespaces[0]: Invalid value: "_": each member of this list must be '*' or a DNS-1123 label; a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
				"spec.rules[0].resourceRules[3].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, check.Run(func(c *check.Checker) { validateFlowSchema(t.Context(), c, schemaWith(test.change)) }), test.want...)
		})
	}
	if got := schemaWith(func(*flowcontrolv1.FlowSchemaSpec) {}).Spec.MatchingPrecedence; got != 1000 {
		t.Errorf("the default precedence is %d", got)
	}
}

func TestMandatoryObjectsAreImmutable(t *testing.T) {
	exempt := mandatoryFlowSchema("exempt")
	expect(t, check.Run(func(c *check.Checker) { validateFlowSchema(t.Context(), c, exempt) }))
	exempt.Spec.Rules = nil
	if errs := check.Run(func(c *check.Checker) { validateFlowSchema(t.Context(), c, exempt) }); len(errs) != 1 || errs[0].Detail != "spec of 'exempt' must equal the fixed value" || errs[0].Field != "spec" {
		t.Errorf("%v", errs)
	}
	level := mandatoryLevel("exempt")
	level.Spec.Exempt.LendablePercent = new(int32(50)) // administrators may change it
	expect(t, check.Run(func(c *check.Checker) { validatePriorityLevel(t.Context(), c, level) }))
	catchAll := mandatoryLevel("catch-all")
	expect(t, check.Run(func(c *check.Checker) { validatePriorityLevel(t.Context(), c, catchAll) }))
	*catchAll.Spec.Limited.NominalConcurrencyShares++
	if errs := check.Run(func(c *check.Checker) { validatePriorityLevel(t.Context(), c, catchAll) }); len(errs) != 1 || errs[0].Detail != "spec of 'catch-all' must equal the fixed value" {
		t.Errorf("%v", errs)
	}
}

func TestPriorityLevels(t *testing.T) {
	queue := func(queues, hand, length int32) flowcontrolv1.LimitResponse {
		return flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: length}}
	}
	limited := func(response flowcontrolv1.LimitResponse) flowcontrolv1.PriorityLevelConfigurationSpec {
		return flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{LimitResponse: response}}
	}
	outOfBounds := limited(flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})
	outOfBounds.Limited.NominalConcurrencyShares, outOfBounds.Limited.LendablePercent, outOfBounds.Limited.BorrowingLimitPercent = new(int32(-1)), new(int32(101)), new(int32(-1))
	for name, test := range map[string]struct {
		name string
		spec flowcontrolv1.PriorityLevelConfigurationSpec
		want []string
	}{
		"good":         {spec: limited(queue(0, 0, 0))},
		"rejecting":    {spec: limited(flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})},
		"no type":      {want: []string{"spec.type: Required value"}},
		"unknown type": {spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "x"}, want: []string{`spec.type: Unsupported value: "x": supported values: "Exempt", "Limited"`}},
		"another exempt level": {
			spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementExempt, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{}},
			want: []string{
				"spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
				"spec.limited: Forbidden: must be nil if the type is not Limited",
			},
		},
		"limited without limits": {
			spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{}},
			want: []string{"spec.exempt: Forbidden: must be nil if the type is Limited", "spec.limited: Required value: must not be empty when type is Limited"},
		},
		"out of range": {spec: outOfBounds, want: []string{
			"spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
			"spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
			"spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
		}},
		"no response":      {spec: limited(flowcontrolv1.LimitResponse{}), want: []string{"spec.limited.limitResponse.type: Required value"}},
		"unknown response": {spec: limited(flowcontrolv1.LimitResponse{Type: "x"}), want: []string{`spec.limited.limitResponse.type: Unsupported value: "x": supported values: "Queue", "Reject"`}},
		"zero queues":      {spec: limited(flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue}), want: []string{"spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"}},
		"negative queues": {spec: limited(queue(-1, -1, -1)), want: []string{
			"spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive",
			"spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive",
			"spec.limited.limitResponse.queuing.handSize: Invalid value: -1: must be positive",
		}},
		"hand larger than the number of queues": {spec: limited(queue(4, 5, 1)), want: []string{"spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"}},
		"too many queues for the hash": {spec: limited(queue(10_000_001, 10, 1)), want: []string{
			"spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000",
			"spec.limited.limitResponse.queuing.handSize: Invalid value: 10: required entropy bits of deckSize 10000001 and handSize 10 should not be greater than 60",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: test.spec}
			SetObjectDefaults_PriorityLevelConfiguration(p)
			expect(t, check.Run(func(c *check.Checker) { validatePriorityLevel(t.Context(), c, p) }), test.want...)
		})
	}
	old := &flowcontrolv1.PriorityLevelConfiguration{Spec: limited(queue(0, 0, 0))}
	SetObjectDefaults_PriorityLevelConfiguration(old)
	old.Annotations = map[string]string{flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey: ""}
	expect(t, check.Run(func(c *check.Checker) { validatePriorityLevel(t.Context(), c, old) }), "metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden")
}

func TestConditions(t *testing.T) {
	f := &flowcontrolv1.FlowSchema{Status: flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{{Type: "a"}, {Type: "a"}, {}}}}
	expect(t, checktest.UpdateErrors(t.Context(), FlowSchema.StatusUpdate.Validate, f, f), `status.conditions[1].type: Duplicate value: "a"`, "status.conditions[2].type: Required value")
}

func TestColumns(t *testing.T) {
	catchAll, exempt := mandatoryLevel("catch-all"), mandatoryLevel("exempt")
	for _, test := range []struct {
		level *flowcontrolv1.PriorityLevelConfiguration
		want  []any
	}{
		{catchAll, []any{"Limited", int32(5), "<none>", "<none>", "<none>"}},
		{exempt, []any{"Exempt", "<none>", "<none>", "<none>", "<none>"}},
	} {
		var got []any
		for _, column := range PriorityLevelConfiguration.Columns {
			got = append(got, column.Cell(test.level))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Error(diff)
		}
	}
	f := schemaWith(func(*flowcontrolv1.FlowSchemaSpec) {})
	if dangling(f) != "?" {
		t.Error("the condition is set before the controller reports")
	}
	f.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue}}
	if dangling(f) != "True" {
		t.Error("the condition of the status is not shown")
	}
}
