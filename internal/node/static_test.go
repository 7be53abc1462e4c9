// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/node/source"
)

// statuses records the writes of statuses, and answers as the API: with the pod as clients wrote it.
type statuses struct {
	answer *v1.Pod
	writes int
}

func (s *statuses) Write(context.Context, *v1.Pod, v1.PodStatus) (*v1.Pod, error) {
	s.writes++
	return s.answer, nil
}

func (s *statuses) Delete(context.Context, *v1.Pod) error { return nil }

// A client can give a pod the annotation of a static pod. Its status is written to the API, each time.
func TestStatusOfAnnotatedPod(t *testing.T) {
	annotated := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{source.Annotation: source.File}}}
	api, static := &statuses{answer: annotated}, &statuses{}
	routed := routedStatus{static: static, api: api}
	p := fromAPI(annotated)
	for range 2 {
		var err error
		if p, err = routed.Write(t.Context(), p, v1.PodStatus{}); err != nil {
			t.Fatal(err)
		}
	}
	if api.writes != 2 || static.writes != 0 {
		t.Errorf("%d writes to the API and %d to the static pod", api.writes, static.writes)
	}
	if annotated.Annotations[source.Annotation] != source.File {
		t.Error("the object of the API was changed")
	}
	if _, err := routed.Write(t.Context(), annotated, v1.PodStatus{}); err != nil || static.writes != 1 {
		t.Errorf("a static pod: %d writes, %v", static.writes, err)
	}
}
