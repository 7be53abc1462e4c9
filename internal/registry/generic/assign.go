// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import "reflect"

// assign copies what src points to into what dst points to. A Kind's Spec and
// Status accessors return pointers of one type, so that spec and status of any
// kind can be kept apart here.
func assign(dst, src any) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem())
}

func setZero(dst any) {
	reflect.ValueOf(dst).Elem().SetZero()
}
