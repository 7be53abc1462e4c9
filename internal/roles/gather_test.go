// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// role has a label, and a rule for each verb.
func role(name, label string, verbs ...string) rbacv1.ClusterRole {
	r := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}}
	for _, verb := range verbs {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"pods"}})
	}
	return r
}

func TestGather(t *testing.T) {
	all := []rbacv1.ClusterRole{role("self", "a", "delete"), role("z", "b", "get"), role("y", "a", "watch", "get"), role("x", "a", "list", "get"), role("other", "c", "update")}
	for name, tt := range map[string]struct {
		labels []string
		want   string
	}{
		"by name, each once, never itself": {[]string{"a"}, "list get watch"},
		"by selector first":                {[]string{"b", "a"}, "get list watch"},
		"nobody":                           {[]string{"d"}, ""},
		"no selector":                      {nil, ""},
	} {
		self := role("self", "a")
		self.AggregationRule = &rbacv1.AggregationRule{}
		for _, label := range tt.labels {
			self.AggregationRule.ClusterRoleSelectors = append(self.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
		}
		rules, err := Gather(&self, all)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range rules {
			got = append(got, rule.Verbs...)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}

func TestGatherRefuses(t *testing.T) {
	r := role("r", "a")
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}},
	}}
	if rules, err := Gather(&r, nil); err == nil {
		t.Errorf("an operator that there is not: %v", rules)
	}
}
