// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package static

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

func named(name, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Annotations: map[string]string{}}}
}

func TestNext(t *testing.T) {
	a, b := named("web", "a"), named("web", "b")
	left := &runtime.Pod{UID: "a", Namespace: "default", Name: "web"}
	for name, test := range map[string]struct {
		slot    slot
		allRead bool
		want    step
	}{
		"nothing":                            {slot{}, true, nothing},
		"new":                                {slot{desired: a}, false, start},
		"runs":                               {slot{desired: a, current: a}, true, nothing},
		"changed":                            {slot{desired: b, current: a}, true, stop},
		"removed":                            {slot{current: a}, true, stop},
		"changed while it stops":             {slot{desired: b, current: a, stopping: true}, true, nothing},
		"wanted again while it stops":        {slot{desired: a, current: a, stopping: true}, true, nothing},
		"left, sources not read yet":         {slot{left: left}, false, nothing},
		"left, the same":                     {slot{left: left, desired: a}, false, adopt},
		"left, another":                      {slot{left: left, desired: b}, false, remove},
		"left, no manifest":                  {slot{left: left}, true, remove},
		"left, another, while it is removed": {slot{left: left, desired: b, stopping: true}, true, nothing},
	} {
		if got := test.slot.next(test.allRead); got != test.want {
			t.Errorf("%s: step %d, want %d", name, got, test.want)
		}
	}
}
