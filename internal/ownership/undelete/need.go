// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
)

// need is an object that another object refers to, other than as its owner, and without which a
// controller deletes the other object.
type need struct {
	objectKey
	// remover is the user name of that controller.
	remover string
	// vital is true if the controller deletes the other object whenever the needed one is absent,
	// and not only when it observes the deletion of the needed one.
	vital bool
}

var (
	accountKind   = schema.GroupKind{Kind: "ServiceAccount"}
	secretKind    = schema.GroupKind{Kind: "Secret"}
	serviceKind   = schema.GroupKind{Kind: "Service"}
	endpointsKind = schema.GroupKind{Kind: "Endpoints"}
)

// needOf returns what an object needs, and whether it needs anything. EndpointSlices,
// ControllerRevisions and ResourceClaims are not listed here, because they have owner references.
func needOf(object *unstructured.Unstructured) (need, bool) {
	switch object.GroupVersionKind().GroupKind() {
	case secretKind:
		if isAccountToken(object) {
			account := objectKey{accountKind, object.GetNamespace(), object.GetAnnotations()[corev1.ServiceAccountNameKey]}
			return need{account, user.KubeControllerManager, true}, true
		}
	case endpointsKind:
		service := objectKey{serviceKind, object.GetNamespace(), object.GetName()}
		return need{service, serviceaccount.MakeUsername(metav1.NamespaceSystem, "endpoint-controller"), false}, true
	}
	return need{}, false
}

// isAccountToken reports whether an object is a ServiceAccount token Secret.
func isAccountToken(object *unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(object.Object, "type")
	return object.GroupVersionKind().GroupKind() == secretKind && kind == string(corev1.SecretTypeServiceAccountToken)
}

// followsNeed reports whether a controller deleted an item because the item that it needs was
// deleted. Such a deletion is part of the root's cascade.
func followsNeed(item *Item, record deletion.Record) bool {
	need, _ := needOf(item.then)
	return item.needs != nil && item.needs.UID() != item.needs.FormerUID() && record.By.User == need.remover
}

// lacksNeed returns why a controller would delete an item again, because the object that it needs
// is absent; "" if it would not. If item.needs is nil, the needed object is outside of the graph.
func lacksNeed(item *Item, outside map[objectKey]*unstructured.Unstructured) string {
	need, needs := needOf(item.then)
	switch {
	case !needs || !need.vital:
		return ""
	case item.needs == nil && outside[need.objectKey] == nil:
		return fmt.Sprintf("its %s %s does not exist, and without it the token controller deletes it", need.kind.Kind, need.name)
	case item.needs != nil && item.needs.now == nil && isLeft(item.needs):
		return fmt.Sprintf("its %s is not restored, and without it the token controller deletes it", item.needs)
	}
	return ""
}

// accounts reads the ServiceAccounts outside of the graph that pending token Secrets need.
func (u *undeletion) accounts(ctx context.Context) (map[objectKey]*unstructured.Unstructured, error) {
	found := map[objectKey]*unstructured.Unstructured{}
	for _, item := range u.items {
		need, needs := needOf(item.then)
		if !needs || !need.vital || item.needs != nil || item.Outcome != ownership.UndeletionPending {
			continue
		}
		if _, read := found[need.objectKey]; read {
			continue
		}
		account, err := u.get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), need.namespace, need.name)
		if err != nil {
			return nil, err
		}
		found[need.objectKey] = account
	}
	return found, nil
}

// keepAccount sets the ServiceAccount's UID in a token Secret to be created, if the restored
// ServiceAccount is the one that the token belonged to. Otherwise the token controller fills in the
// UID of the ServiceAccount of that name.
func (u *undeletion) keepAccount(item *Item, object *unstructured.Unstructured) {
	former := item.then.GetAnnotations()[corev1.ServiceAccountUIDKey]
	if item.needs == nil || former == "" || types.UID(former) != item.needs.FormerUID() || item.needs.now == nil {
		return
	}
	_ = unstructured.SetNestedField(object.Object, former, "metadata", "annotations", corev1.ServiceAccountUIDKey)
}
