// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package generic

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

func scaled() *scaleStore[*appsv1.Deployment] {
	kind := workload()
	kind.Scale = &Scale[*appsv1.Deployment]{
		Replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
		Current:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
	}
	return &scaleStore[*appsv1.Deployment]{kind: &kind, parent: schema.GroupVersion{Group: "apps", Version: "v1"}}
}

func selected(replicas int32) *appsv1.Deployment {
	d := deployment(replicas, 0)
	d.ResourceVersion, d.UID = "5", "u"
	d.Status.Replicas = 2
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	return d
}

func TestScaleOf(t *testing.T) {
	s, d := scaled(), selected(3)
	got, err := s.scaleOf(d)
	if err != nil || got.Spec.Replicas != 3 || got.Status.Replicas != 2 || got.Status.Selector != "a=b" || got.Name != "web" || got.ResourceVersion != "5" || got.UID != "u" {
		t.Errorf("%+v, %v", got, err)
	}
	d.Spec.Replicas = nil
	if got, err := s.scaleOf(d); err != nil || got.Spec.Replicas != 1 {
		t.Errorf("without a number: %+v, %v", got, err)
	}
}

func TestScaleUpdate(t *testing.T) {
	update := func(change func(*autoscalingv1.Scale)) (*appsv1.Deployment, error) {
		info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			scale := old.DeepCopyObject().(*autoscalingv1.Scale)
			change(scale)
			return scale, nil
		})
		old := selected(3)
		got, err := scaleUpdate[*appsv1.Deployment]{scaled(), info}.UpdatedObject(t.Context(), old)
		if *old.Spec.Replicas != 3 {
			t.Error("the old object was changed")
		}
		if err != nil {
			return nil, err
		}
		return got.(*appsv1.Deployment), nil
	}
	got, err := update(func(s *autoscalingv1.Scale) { s.Spec.Replicas = 7; s.Status.Replicas = 99 })
	if err != nil || *got.Spec.Replicas != 7 || got.Status.Replicas != 2 || got.ResourceVersion != "5" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = update(func(s *autoscalingv1.Scale) { s.ResourceVersion, s.Labels = "4", map[string]string{"bad key": ""} })
	if err != nil || got.ResourceVersion != "4" || got.UID != "u" || len(got.Labels) != 1 {
		t.Errorf("preconditions are lost: %+v, %v", got, err)
	}
	_, err = update(func(s *autoscalingv1.Scale) { s.UID = "other" })
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Precondition failed: UID in precondition: other, UID in object meta: u") {
		t.Errorf("another object: %v", err)
	}
	_, err = update(func(s *autoscalingv1.Scale) { s.Spec.Replicas = -1 })
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`) {
		t.Errorf("negative: %v", err)
	}
}
