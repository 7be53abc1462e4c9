// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication answers the reviews of authentication.k8s.io: whose
// token this is, and who the caller is.
package authentication

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are the server's own way to authenticate.
type Dependencies struct {
	Requests  authenticator.Request
	Audiences authenticator.Audiences
}

// Group is authentication.k8s.io.
func Group(d Dependencies) generic.Group {
	return generic.Group{
		Name:     authenticationv1.GroupName,
		Priority: 17700,
		Scheme: []func(*runtime.Scheme) error{
			authenticationv1.AddToScheme, generic.Internal(authenticationv1.GroupName, &authenticationv1.TokenRequest{}),
		},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			generic.Transient{Plural: "tokenreviews", Endpoint: &tokenReview{d}},
			generic.Transient{Plural: "selfsubjectreviews", Endpoint: selfReview{}},
		}}},
	}
}

var (
	_ rest.Creater = &tokenReview{}
	_ rest.Creater = selfReview{}
)

// tokenReview asks the server's authenticators whose token it is.
type tokenReview struct{ Dependencies }

func (*tokenReview) New() runtime.Object     { return &authenticationv1.TokenReview{} }
func (*tokenReview) Destroy()                {}
func (*tokenReview) NamespaceScoped() bool   { return false }
func (*tokenReview) GetSingularName() string { return "tokenreview" }

func (t *tokenReview) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(*authenticationv1.TokenReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenReview: %#v", obj))
	}
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("namespace is not allowed on this type: %v", namespace))
	}
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	answer, known, err := t.Requests.AuthenticateRequest(t.asRequest(review))
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known}
	if err != nil {
		review.Status.Error = err.Error()
	}
	if !known || answer.User == nil {
		return review, nil
	}
	review.Status.User = userInfo(answer.User)
	if answer.Audiences == nil {
		return review, nil
	}
	if len(review.Spec.Audiences) > 0 && !subset(answer.Audiences, review.Spec.Audiences) {
		return nil, apierrors.NewInternalError(errors.New("token was accepted for audiences that were not asked for"))
	}
	review.Status.Audiences = answer.Audiences
	return review, nil
}

// asRequest is a request that carries the token and nothing of the caller, for
// the audiences asked for.
func (t *tokenReview) asRequest(review *authenticationv1.TokenReview) *http.Request {
	audiences := authenticator.Audiences(review.Spec.Audiences)
	if len(audiences) == 0 {
		audiences = t.Audiences
	}
	req := (&http.Request{Header: http.Header{}}).WithContext(authenticator.WithAudiences(context.Background(), audiences))
	req.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	return req
}

func subset(part, whole []string) bool {
	known := map[string]bool{}
	for _, s := range whole {
		known[s] = true
	}
	for _, s := range part {
		if !known[s] {
			return false
		}
	}
	return true
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// selfReview tells the caller who they are: `kubectl auth whoami`.
type selfReview struct{}

func (selfReview) New() runtime.Object     { return &authenticationv1.SelfSubjectReview{} }
func (selfReview) Destroy()                {}
func (selfReview) NamespaceScoped() bool   { return false }
func (selfReview) GetSingularName() string { return "selfsubjectreview" }

func (selfReview) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(u)},
	}, nil
}
