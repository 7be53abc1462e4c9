// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

func (m *memory) Oldest(context.Context) (int64, error) { return 1, nil }

func (m *memory) Time(int64) time.Time { return time.Unix(60, 0) }

func (m *memory) Asked(context.Context, int64) ([]deletion.Record, error) { return m.records, nil }

func (w *world) history(m *memory, spec ownership.DeletionHistorySpec) (ownership.DeletionHistoryStatus, error) {
	w.t.Helper()
	reviews := w.reviews()
	sources := *reviews.connected()
	sources.Records, sources.History = m, m
	reviews.Connect(sources)
	review := &ownership.DeletionHistory{Spec: spec}
	err := w.create(reviews.DeletionHistories(w.policy()), review)
	return review.Status, err
}

// TestHistoryHides: what the caller may not read is counted where all are listed; who asks
// for one of a name that they may not get is refused, whether there was one or not.
func TestHistoryHides(t *testing.T) {
	w := newWorld(t)
	m := &memory{}
	m.deleted(pods, "a", "seen", 1, kubectl, nil)
	m.deleted(configMaps, "a", "hidden", 2, kubectl, nil)
	w.allowed = func(a authorizer.Attributes) bool { return a.GetResource() == "pods" && a.GetNamespace() == "a" }
	s, err := w.history(m, ownership.DeletionHistorySpec{})
	if err != nil || len(s.Deletions) != 1 || s.Deletions[0].Object.Name != "seen" || s.Hidden != 1 {
		t.Errorf("all: %v, %+v", err, s)
	}
	one := func(kind, namespace, name string) ownership.DeletionHistorySpec {
		return ownership.DeletionHistorySpec{Namespace: "a", Object: &ownership.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name}}
	}
	for name, there := range map[string]bool{"hidden": true, "never": false} {
		if s, err := w.history(m, one("ConfigMap", "a", name)); !apierrors.IsForbidden(err) || s.Hidden > 0 {
			t.Errorf("%s (there was one: %v): %v, %+v", name, there, err, s)
		}
	}
	for _, namespace := range []string{"a", ""} {
		if s, err := w.history(m, one("Pod", namespace, "seen")); err != nil || len(s.Deletions) != 1 {
			t.Errorf("a pod in %q: %v, %+v", namespace, err, s)
		}
	}
}

// TestUndeletionOfWhatIsNotRecorded: of who deleted it and when nothing is made up.
func TestUndeletionOfWhatIsNotRecorded(t *testing.T) {
	q := &question{access: newAccess(newWorld(t), nil)}
	s := q.reported(t.Context(), pods, &undelete.Report{Deletion: deletion.Record{Resource: pods.GroupResource(), Namespace: "a", Name: "b", UID: "c"}})
	if d := s.Deletion; d.Time != nil || d.By.Kind != ownership.AgentUnknown || d.Object.UID != "c" || len(d.Because) > 0 {
		t.Errorf("%+v", d)
	}
}
