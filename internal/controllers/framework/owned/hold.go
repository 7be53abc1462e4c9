// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// IsHeld reports whether an object is on hold: its controller must leave it and its children
// alone. Removing the hold updates the object and so wakes the controller. An object that is
// being deleted is not on hold: nothing is created for it any more, and its controller may have
// to remove a finalizer.
func IsHeld(obj client.Object) bool {
	_, held := obj.GetAnnotations()[ownership.HoldAnnotation]
	return held && obj.GetDeletionTimestamp() == nil
}
