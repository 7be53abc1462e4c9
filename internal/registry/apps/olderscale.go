// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kindred-project/kindred/internal/registry/versions"
)

// selectors are the two fields of an older Scale for the selector, which autoscaling/v1 has as text
// in one field.
type selectors struct {
	labels *map[string]string
	text   *string
}

// olderScale registers the Scale of a group before autoscaling/v1.
func olderScale[O runtime.Object](of func(O) selectors) func(*runtime.Scheme) error {
	return versions.Older[O, *autoscalingv1.Scale]{
		ToStored: func(older O, scale *autoscalingv1.Scale) {
			s := of(older)
			scale.Status.Selector = *s.text
			if *s.text == "" {
				scale.Status.Selector = labels.SelectorFromSet(*s.labels).String()
			}
		},
		ToOlder: func(scale *autoscalingv1.Scale, older O) {
			s := of(older)
			*s.labels, *s.text = nil, scale.Status.Selector
			// A selector with expressions has no form as labels.
			selector, err := metav1.ParseToLabelSelector(scale.Status.Selector)
			if err == nil && len(selector.MatchExpressions) == 0 {
				*s.labels = selector.MatchLabels
			}
		},
	}.Register
}
