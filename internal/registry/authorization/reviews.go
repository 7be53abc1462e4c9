// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization serves the reviews of authorization.k8s.io, which ask what a user is
// allowed to do.
package authorization

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/check"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Group is authorization.k8s.io.
func Group(a authorizer.Authorizer, rules authorizer.RuleResolver) generic.Group {
	return generic.Group{
		Name:     authorizationv1.GroupName,
		Priority: 17600,
		Scheme:   []func(*runtime.Scheme) error{authorizationv1.AddToScheme},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			generic.Transient{Plural: "subjectaccessreviews", Endpoint: accessReview[*authorizationv1.SubjectAccessReview]{
				authorizer: a, singular: "subjectaccessreview",
				empty:    func() *authorizationv1.SubjectAccessReview { return &authorizationv1.SubjectAccessReview{} },
				validate: validateReview, asked: askedOf, status: func(r *authorizationv1.SubjectAccessReview) *authorizationv1.SubjectAccessReviewStatus {
					return &r.Status
				},
			}},
			generic.Transient{Plural: "localsubjectaccessreviews", Endpoint: accessReview[*authorizationv1.LocalSubjectAccessReview]{
				authorizer: a, singular: "localsubjectaccessreview", namespaced: true,
				empty:    func() *authorizationv1.LocalSubjectAccessReview { return &authorizationv1.LocalSubjectAccessReview{} },
				validate: validateLocalReview, asked: askedLocally, status: func(r *authorizationv1.LocalSubjectAccessReview) *authorizationv1.SubjectAccessReviewStatus {
					return &r.Status
				},
			}},
			generic.Transient{Plural: "selfsubjectaccessreviews", Endpoint: accessReview[*authorizationv1.SelfSubjectAccessReview]{
				authorizer: a, singular: "selfsubjectaccessreview",
				empty:    func() *authorizationv1.SelfSubjectAccessReview { return &authorizationv1.SelfSubjectAccessReview{} },
				validate: validateSelfReview, asked: askedOfCaller, status: func(r *authorizationv1.SelfSubjectAccessReview) *authorizationv1.SubjectAccessReviewStatus {
					return &r.Status
				},
			}},
			generic.Transient{Plural: "selfsubjectrulesreviews", Endpoint: rulesReview{rules}},
		}}},
	}
}

// accessReview answers one kind of access review.
type accessReview[T generic.Object] struct {
	authorizer authorizer.Authorizer
	singular   string
	namespaced bool
	empty      func() T
	validate   func(c *check.Checker, review T)
	asked      func(ctx context.Context, review T) (authorizer.AttributesRecord, error)
	status     func(review T) *authorizationv1.SubjectAccessReviewStatus
}

var _ rest.Creater = accessReview[*authorizationv1.SubjectAccessReview]{}

func (a accessReview[T]) New() runtime.Object     { return a.empty() }
func (a accessReview[T]) Destroy()                {}
func (a accessReview[T]) NamespaceScoped() bool   { return a.namespaced }
func (a accessReview[T]) GetSingularName() string { return a.singular }

func (a accessReview[T]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a review of this kind: %#v", obj))
	}
	if errs := check.Run(func(c *check.Checker) { a.validate(c, review) }); len(errs) > 0 {
		// Upstream names no kind here.
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	attributes, err := a.asked(ctx, review)
	if err != nil {
		return nil, err
	}
	decision, reason, err := a.authorizer.Authorize(ctx, attributes)
	*a.status(review) = authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, attributes),
	}
	return review, nil
}

func askedOf(_ context.Context, r *authorizationv1.SubjectAccessReview) (authorizer.AttributesRecord, error) {
	return attributesOf(r.Spec), nil
}

func askedLocally(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) (authorizer.AttributesRecord, error) {
	namespace := request.NamespaceValue(ctx)
	if namespace == "" {
		return authorizer.AttributesRecord{}, apierrors.NewBadRequest(fmt.Sprintf("namespace is required on this type: %v", namespace))
	}
	if namespace != r.Namespace {
		return authorizer.AttributesRecord{}, apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", namespace))
	}
	return attributesOf(r.Spec), nil
}

func askedOfCaller(ctx context.Context, r *authorizationv1.SelfSubjectAccessReview) (authorizer.AttributesRecord, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return authorizer.AttributesRecord{}, apierrors.NewBadRequest("no user present on request")
	}
	return attributes(caller, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), nil
}

func attributesOf(spec authorizationv1.SubjectAccessReviewSpec) authorizer.AttributesRecord {
	extra := map[string][]string{}
	for key, values := range spec.Extra {
		extra[key] = values
	}
	subject := &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID, Extra: extra}
	return attributes(subject, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// evaluationError joins the authorizer's error with errors of selectors: an unknown selector makes
// the question broader, not invalid (KEP-4601).
func evaluationError(err error, a authorizer.AttributesRecord) string {
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	if a.FieldSelectorParsingErr != nil {
		problems = append(problems, ignored("fieldSelector", len(a.FieldSelectorRequirements)))
	}
	if a.LabelSelectorParsingErr != nil {
		problems = append(problems, ignored("labelSelector", len(a.LabelSelectorRequirements)))
	}
	return strings.Join(problems, "; ")
}

func ignored(selector string, understood int) string {
	if understood > 0 {
		return "spec.resourceAttributes." + selector + " partially ignored due to parse error"
	}
	return "spec.resourceAttributes." + selector + " ignored due to parse error"
}

// rulesReview lists the caller's permissions: `kubectl auth can-i --list`.
type rulesReview struct{ rules authorizer.RuleResolver }

var _ rest.Creater = rulesReview{}

func (rulesReview) New() runtime.Object     { return &authorizationv1.SelfSubjectRulesReview{} }
func (rulesReview) Destroy()                {}
func (rulesReview) NamespaceScoped() bool   { return false }
func (rulesReview) GetSingularName() string { return "selfsubjectrulesreview" }

func (r rulesReview) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectRulesReview: %#v", obj))
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	resources, urls, incomplete, err := r.rules.RulesFor(ctx, caller, review.Spec.Namespace)
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
	}
	for _, rule := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range urls {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return &authorizationv1.SelfSubjectRulesReview{Status: status}, nil
}
