// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"testing"
	"time"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestKept: definitions are made once, forgotten after a while, and a change of one caller is not seen by others.
func TestKept(t *testing.T) {
	made := 0
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	get := Kept(func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		made++
		schema := spec.Schema{VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-a": "b"}}}
		schema.Ref = ref("type")
		return map[string]common.OpenAPIDefinition{"type": {Schema: schema}}
	}, clock)
	ref := func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) }
	for range 3 {
		mine := get(ref)["type"]
		if reference := mine.Schema.Ref.String(); mine.Schema.Extensions["x-a"] != "b" || reference != "#/type" {
			t.Errorf("a definition has the extensions %v and the reference %s", mine.Schema.Extensions, reference)
		}
		delete(mine.Schema.Extensions, "x-a")
	}
	if made != 1 {
		t.Errorf("the definitions were made %d times", made)
	}
	clock.Step(keepFor)
	for made == 1 { // until the goroutine has forgotten them
		get(ref)
	}
	if made != 2 {
		t.Errorf("after a while, the definitions were made %d times", made-1)
	}
}
