// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kindred-project/kindred/internal/registry/check"
)

func TestSelectorsOfReviews(t *testing.T) {
	type fieldSelector = authorizationv1.FieldSelectorAttributes
	type requirement = metav1.FieldSelectorRequirement
	for name, test := range map[string]struct {
		selector     fieldSelector
		requirements int
		problem      string
	}{
		"raw":                  {fieldSelector{RawSelector: "spec.nodeName=n,metadata.name!=x"}, 2, ""},
		"invalid raw selector": {fieldSelector{RawSelector: "a"}, 0, "invalid selector"},
		"in":                   {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "In", Values: []string{"b"}}}}, 1, ""},
		"in several values":    {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "In", Values: []string{"b", "c"}}, {Key: "d", Operator: "NotIn", Values: []string{"e"}}}}, 1, "do not yet support multiple values"},
		"exists":               {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "Exists"}}}, 0, "do not yet support Exists"},
		"in no values":         {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "NotIn"}}}, 0, "fieldSelectors not in must have one value"},
		"unknown":              {fieldSelector{Requirements: []requirement{{Key: "a", Operator: "Like", Values: []string{"b"}}}}, 0, `"Like" is not a valid field selector operator`},
	} {
		a := attributes(&user.DefaultInfo{}, &authorizationv1.ResourceAttributes{Verb: "list", FieldSelector: &test.selector}, nil)
		problem := ""
		if a.FieldSelectorParsingErr != nil {
			problem = a.FieldSelectorParsingErr.Error()
		}
		if len(a.FieldSelectorRequirements) != test.requirements || !strings.Contains(problem, test.problem) || (problem == "") != (test.problem == "") {
			t.Errorf("%s: %v, %q", name, a.FieldSelectorRequirements, problem)
		}
		want := ""
		if test.problem != "" {
			want = "spec.resourceAttributes.fieldSelector ignored due to parse error"
		}
		if test.problem != "" && test.requirements > 0 {
			want = "spec.resourceAttributes.fieldSelector partially ignored due to parse error"
		}
		if said := evaluationError(nil, a); said != want {
			t.Errorf("%s: evaluation error %q, want %q", name, said, want)
		}
	}
	labels := &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: "In", Values: []string{"b", "c"}}, {Key: "d", Operator: "Exists"}, {Key: "e", Operator: "Bogus"}}}
	a := attributes(&user.DefaultInfo{}, &authorizationv1.ResourceAttributes{Verb: "list", LabelSelector: labels}, nil)
	if len(a.LabelSelectorRequirements) != 2 || a.LabelSelectorParsingErr == nil || a.APIVersion != "*" || !a.ResourceRequest {
		t.Errorf("%+v", a)
	}
	a.FieldSelectorParsingErr = errors.New("odd")
	if got, want := evaluationError(errors.New("webhook"), a), "webhook; spec.resourceAttributes.fieldSelector ignored due to parse error; "+
		"spec.resourceAttributes.labelSelector partially ignored due to parse error"; got != want {
		t.Errorf("%q, want %q", got, want)
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
		"no subject": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: resource}}, []string{"spec.user: Invalid value"}},
		"two selectors": {authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", FieldSelector: &authorizationv1.FieldSelectorAttributes{},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a", Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}}}}},
			[]string{"spec.resourceAttributes.fieldSelector.requirements: Required", "spec.resourceAttributes.labelSelector.rawSelector: Invalid"}},
	} {
		var got []string
		for _, err := range check.Run(func(c *check.Checker) { validateLocalReview(c, &test.review) }) {
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

// TestRefusedReview checks that the Status names no kind and quotes the whole metadata.
func TestRefusedReview(t *testing.T) {
	review := &authorizationv1.LocalSubjectAccessReview{
		TypeMeta:   metav1.TypeMeta{Kind: "LocalSubjectAccessReview"},
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec:       authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a"}},
	}
	_, err := accessReview[*authorizationv1.LocalSubjectAccessReview]{validate: validateLocalReview}.Create(t.Context(), review, nil, nil)
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	got := status.Status()
	if got.Details.Kind != "" || got.Details.Group != authorizationv1.GroupName || len(got.Details.Causes) != 1 {
		t.Errorf("%+v", got.Details)
	}
	for _, quoted := range []string{`"name":"x"`, `"namespace":"a"`, `"manager":"m"`} {
		if !strings.Contains(got.Message, quoted) {
			t.Errorf("%q does not quote %s", got.Message, quoted)
		}
	}
}
