// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication serves the reviews of authentication.k8s.io: TokenReview and
// SelfSubjectReview.
package authentication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kindred-project/kindred/internal/auth/serviceaccount"
	"github.com/kindred-project/kindred/internal/registry/generic"
)

// Dependencies are the authenticators of the server.
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
			authenticationv1.AddToScheme, generic.Internal(authenticationv1.GroupName, &authenticationv1.TokenRequest{}), addDefaults,
		},
		Versions: []generic.Version{{Name: "v1", Resources: []generic.Resource{
			generic.Transient{Plural: "tokenreviews", Endpoint: &tokenReview{d}},
			generic.Transient{Plural: "selfsubjectreviews", Endpoint: selfReview{}},
		}}},
	}
}

// addDefaults registers the defaults of TokenRequest, which is served below service accounts.
func addDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(obj any) {
		serviceaccount.SetDefaults(obj.(*authenticationv1.TokenRequest))
	})
	return nil
}

var (
	_ rest.Creater = &tokenReview{}
	_ rest.Creater = selfReview{}
)

// tokenReview asks the server's authenticators for the user of a token.
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
	audiences := authenticator.Audiences(review.Spec.Audiences)
	if len(audiences) == 0 {
		audiences = t.Audiences
	}
	answer, known, err := t.Requests.AuthenticateRequest(asRequest(review.Spec.Token, audiences))
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known}
	if err != nil {
		review.Status.Error = err.Error()
	}
	if answer == nil {
		return review, nil
	}
	if len(audiences) > 0 && len(audiences.Intersect(answer.Audiences)) == 0 {
		return nil, apierrors.NewInternalError(errors.New("error validating audiences"))
	}
	if answer.User != nil {
		review.Status.User = userInfo(answer.User)
		review.Status.Audiences = answer.Audiences
	}
	return review, nil
}

// asRequest returns a request that carries the token and nothing of the caller.
func asRequest(token string, audiences authenticator.Audiences) *http.Request {
	req := &http.Request{Header: http.Header{}, URL: &url.URL{}}
	req.Header.Set("Authorization", "Bearer "+token)
	return req.WithContext(authenticator.WithAudiences(context.Background(), audiences))
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

// selfReview returns the caller's user: `kubectl auth whoami`.
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
