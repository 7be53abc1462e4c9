// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import "reflect"

// assign copies *src to *dst. Both are pointers of the same type, as a Kind's Spec or Status
// accessor returns them.
func assign(dst, src any) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

func setZero(dst any) {
	reflect.ValueOf(dst).Elem().SetZero()
}
