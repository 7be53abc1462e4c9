// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

func TestHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		deleted     bool
		want        bool
	}{
		"no annotations":          {},
		"another annotation":      {annotations: map[string]string{"ownership.kindred.dev/other": ""}},
		"held":                    {annotations: map[string]string{ownership.HoldAnnotation: "undelete"}, want: true},
		"empty value":             {annotations: map[string]string{ownership.HoldAnnotation: ""}, want: true},
		"value false":             {annotations: map[string]string{ownership.HoldAnnotation: "false"}, want: true},
		"held, but being deleted": {annotations: map[string]string{ownership.HoldAnnotation: ""}, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &metav1.ObjectMeta{Annotations: tt.annotations}
			if tt.deleted {
				object.DeletionTimestamp = &metav1.Time{}
			}
			if got := ownership.IsHeld(object); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
