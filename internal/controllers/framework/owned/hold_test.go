// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/controltest"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
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
			pod := newPod("pod", "web", nil)
			pod.Annotations = tt.annotations
			if tt.deleted {
				pod.DeletionTimestamp = &metav1.Time{Time: controltest.Start}
			}
			if got := owned.IsHeld(pod); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
