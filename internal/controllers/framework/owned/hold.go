// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// Held reports whether a controller must leave the object, and what it owns, as they are.
// Whoever took the hold away has changed the object, so that its controller is woken. An
// object whose deletion has begun is not held: nothing is made for it any more, and some of
// what is still to do for it, such as the release of a finalizer, lets it go.
func Held(obj client.Object) bool {
	_, held := obj.GetAnnotations()[ownership.HoldAnnotation]
	return held && obj.GetDeletionTimestamp() == nil
}
