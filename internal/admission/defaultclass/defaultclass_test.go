// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultclass

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDefaultOf(t *testing.T) {
	class := func(name string, age int, annotations map[string]string) *storagev1.StorageClass {
		created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour)
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(created), Annotations: annotations}}
	}
	yes, older, no := map[string]string{"default": "true"}, map[string]string{"beta": "true"}, map[string]string{"default": "false"}
	for _, test := range []struct {
		name    string
		classes []*storagev1.StorageClass
		want    string
	}{
		{"no classes", nil, ""},
		{"no class is marked", []*storagev1.StorageClass{class("a", 1, nil), class("b", 1, no)}, ""},
		{"one class is marked", []*storagev1.StorageClass{class("a", 1, nil), class("b", 2, yes)}, "b"},
		{"marked by the other annotation", []*storagev1.StorageClass{class("a", 1, older)}, "a"},
		{"several are marked: the newest", []*storagev1.StorageClass{class("a", 3, yes), class("b", 1, yes), class("c", 2, older)}, "b"},
		{"several of the same age: the first by name", []*storagev1.StorageClass{class("c", 1, yes), class("b", 1, yes)}, "b"},
	} {
		if got := defaultOf(test.classes, "default", "beta"); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
