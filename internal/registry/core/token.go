// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// TokenIssuer issues service account tokens.
type TokenIssuer interface {
	Request(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest, admit rest.ValidateObjectFunc) (*authenticationv1.TokenRequest, error)
}

// tokenStore serves serviceaccounts/token.
type tokenStore struct{ issuer TokenIssuer }

var (
	_ rest.NamedCreater                   = tokenStore{}
	_ rest.GroupVersionKindProvider       = tokenStore{}
	_ rest.SubresourceObjectMetaPreserver = tokenStore{}
)

func (tokenStore) New() runtime.Object { return &authenticationv1.TokenRequest{} }
func (tokenStore) Destroy()            {}

func (tokenStore) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID of the request, a
// precondition for the account.
func (tokenStore) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

func (s tokenStore) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	namespace, ok := request.NamespaceFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("namespace is required")
	}
	token, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest object: %T", obj))
	}
	return s.issuer.Request(ctx, namespace, name, token, validate)
}
