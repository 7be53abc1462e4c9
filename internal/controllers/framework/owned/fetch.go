// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Fetch reads the owner that a request names, and reports whether to reconcile it. It reports false
// for an owner that does not exist, which it drops with the forget functions, and for one on hold.
func Fetch(ctx context.Context, from client.Reader, req ctrl.Request, owner client.Object, forget ...func(types.NamespacedName)) (bool, error) {
	err := from.Get(ctx, req.NamespacedName, owner)
	if apierrors.IsNotFound(err) {
		for _, f := range forget {
			f(req.NamespacedName)
		}
		return false, nil
	}
	return err == nil && !ownership.IsHeld(owner), err
}
