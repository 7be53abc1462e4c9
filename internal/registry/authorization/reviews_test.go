// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestSelectorsOfReviews(t *testing.T) {
	type fieldSelector = authorizationv1.FieldSelectorAttributes
	type requirement = metav1.FieldSelectorRequirement
	for name, test := range map[string]struct {
		selector     fieldSelector
		requirements int
		problem      string
	}{
		"raw":         {fieldSelector{RawSelector: "spec.nodeName=n,metadata.name!=x"}, 2, ""},
		"raw, broken": {fieldSelector{RawSelector: "a"}, 0, "invalid selector"},
		"in":          {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "In", Values: []string{"b"}}}}, 1, ""},
		"in many":     {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "In", Values: []string{"b", "c"}}, {Key: "d", Operator: "NotIn", Values: []string{"e"}}}}, 1, "do not yet support multiple values"},
		"exists":      {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "Exists"}}}, 0, "do not yet support Exists"},
		"in nothing":  {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "NotIn"}}}, 0, "fieldSelectors not in must have one value"},
		"unknown":     {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}}, 0, `"Like" is not a valid field selector operator`},
	} {
		a := attributes(&user.DefaultInfo{}, &authorizationv1.ResourceAttributes{Verb: "list", FieldSelector: &test.selector}, nil)
		problem := ""
		if a.FieldSelectorParsingErr != nil {
			problem = a.FieldSelectorParsingErr.Error()
		}
		if len(a.FieldSelectorRequirements) != test.requirements || !strings.Contains(problem, test.problem) || (problem == "") != (test.problem == "") {
			t.Errorf("%s: %v, %q", name, a.FieldSelectorRequirements, problem)
		}
		if said := evaluationError(nil, a); (said != "") != (test.problem != "") {
			t.Errorf("%s: evaluation error %q", name, said)
		}
	}
	labels := &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: "In", Values: []string{"b", "c"}}, {Key: "d", Operator: "Exists"}, {Key: "e", Operator: "Bogus"}}}
	a := attributes(&user.DefaultInfo{}, &authorizationv1.ResourceAttributes{Verb: "list", LabelSelector: labels}, nil)
	if len(a.LabelSelectorRequirements) != 2 || a.LabelSelectorParsingErr == nil || a.APIVersion != "*" || !a.ResourceRequest {
		t.Errorf("%+v", a)
	}
	if a := attributes(&user.DefaultInfo{}, nil, &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}); a.ResourceRequest || a.Path != "/x" {
		t.Errorf("%+v", a)
	}
}

func TestReviewsAreValidated(t *testing.T) {
	resource := &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get"}
	good := authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: resource}
	for name, test := range map[string]struct {
		review authorizationv1.LocalSubjectAccessReview
		want   []string
	}{
		"good":            {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: good}, nil},
		"named":           {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}, Spec: good}, []string{"metadata: Invalid value"}},
		"other namespace": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "b"}, Spec: good}, []string{"spec.resourceAttributes.namespace: Invalid value"}},
		"a URL": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"},
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}}, []string{"spec.nonResourceAttributes: Invalid value"}},
		"nobody": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: resource}}, []string{"spec.user: Invalid value"}},
		"two selectors": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", FieldSelector: &authorizationv1.FieldSelectorAttributes{},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a", Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}}}}},
			[]string{"spec.resourceAttributes.fieldSelector.requirements: Required", "spec.resourceAttributes.labelSelector.rawSelector: Invalid"}},
	} {
		var got []string
		for _, err := range validateLocalReview(t.Context(), &test.review) {
			got = append(got, err.Error())
		}
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], test.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], test.want[i])
			}
		}
	}
}
