// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientrest "k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

func (m *memory) Oldest(context.Context) (int64, error) { return 1, nil }

func (m *memory) Time(int64) time.Time { return time.Unix(60, 0) }

func (m *memory) Requested(context.Context, int64) ([]deletion.Record, error) { return m.records, nil }

func (w *world) history(m *memory, spec ownership.DeletionHistorySpec) (ownership.DeletionHistoryStatus, error) {
	w.t.Helper()
	return w.historyFrom(w.reviews(), m, spec)
}

func (w *world) historyFrom(reviews *Reviews, m *memory, spec ownership.DeletionHistorySpec) (ownership.DeletionHistoryStatus, error) {
	w.t.Helper()
	sources := *reviews.connected()
	sources.Records, sources.History = m, m
	reviews.Connect(sources)
	review := &ownership.DeletionHistory{Spec: spec}
	err := w.create(reviews.DeletionHistories(w.policy()), review)
	return review.Status, err
}

// TestHistoryHides: a list of all deletions counts objects that the caller may not read. A request
// for the name of such an object is refused, whether or not it existed.
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

// TestHistoryLeavesOutWhatFollowed: the history does not list objects that an operator deleted
// because their owner was being deleted. They are restored with the owner.
func TestHistoryLeavesOutWhatFollowed(t *testing.T) {
	w, m := newWorld(t), &memory{}
	m.deleted(pods, "a", "before", 1, operator, ownedBy(configMaps, "root"))
	m.deleted(configMaps, "a", "root", 2, kubectl, nil)
	m.deleted(pods, "a", "followed", 3, operator, ownedBy(configMaps, "root"))
	m.deleted(pods, "a", "by-hand", 3, kubectl, ownedBy(configMaps, "root"))
	s, err := w.history(m, ownership.DeletionHistorySpec{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range s.Deletions {
		names = append(names, d.Object.Name)
	}
	if diff := cmp.Diff([]string{"before", "root", "by-hand"}, names); diff != "" {
		t.Error(diff)
	}
}

// TestHistoryReadsAtOnce checks that existing objects are listed page by page for many names, and
// read one by one for few.
func TestHistoryReadsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		names, places int
		want          []string
	}{
		"few":                         {fewNames, 1, slices.Repeat([]string{"get a"}, fewNames)},
		"many":                        {fewNames + 1, 1, []string{"list a", "list a"}},
		"many, in several namespaces": {fewNames + 1, 2, []string{"list ", "list "}},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorld(t), &memory{}
			for i := range tt.names {
				m.deleted(configMaps, []string{"a", "b"}[i%tt.places], fmt.Sprint("gone-", i), i, kubectl, nil)
			}
			w.add(configMaps, "a", "gone-0", nil)
			w.add(configMaps, "b", "gone-1", func(o *unstructured.Unstructured) { o.SetUID("other") })
			w.add(configMaps, "a", "stays", nil)
			reviews := w.reviews()
			client := reviews.connected().Metadata.(*metadatafake.FakeMetadataClient)
			lists := 0
			client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				lists++
				return lists == 1, &metav1.List{ListMeta: metav1.ListMeta{Continue: "next"}}, nil
			})
			s, err := w.historyFrom(reviews, m, ownership.DeletionHistorySpec{})
			if want := tt.names - tt.places; err != nil || len(s.Deletions) != want {
				t.Errorf("%d deletions, want %d: %v", len(s.Deletions), want, err)
			}
			var asked []string
			for _, action := range client.Actions() {
				asked = append(asked, action.GetVerb()+" "+action.GetNamespace())
			}
			if diff := cmp.Diff(tt.want, asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUndeletionsHaveTheirAgent checks that undeletions have their own user agent in the audit log.
func TestUndeletionsHaveTheirAgent(t *testing.T) {
	w := newWorld(t)
	reviews := w.reviews()
	sources := *reviews.connected()
	var agents []string
	sources.Records, sources.History = &memory{}, &memory{}
	sources.ConfigFor = func(caller user.Info, agent string) *clientrest.Config {
		agents = append(agents, caller.GetName()+" by "+agent)
		return &clientrest.Config{}
	}
	reviews.Connect(sources)
	review := &ownership.Undeletion{Spec: ownership.UndeletionSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "never"}}}
	if err := w.create(reviews.Undeletions(w.policy()), review); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"jane by ownership-undelete"}, agents); diff != "" {
		t.Errorf("user agents (-want +got):\n%s", diff)
	}
}

// TestUndeletionOfWhatIsNotRecorded: without a record, the user and time of the deletion are left
// empty.
func TestUndeletionOfWhatIsNotRecorded(t *testing.T) {
	q := &question{access: newAccess(newWorld(t), nil)}
	s := q.reported(t.Context(), pods, &undelete.Report{Deletion: deletion.Record{Resource: pods.GroupResource(), Namespace: "a", Name: "b", UID: "c"}})
	if d := s.Deletion; d.Time != nil || d.By.Kind != ownership.AgentUnknown || d.Object.UID != "c" || len(d.Because) > 0 {
		t.Errorf("%+v", d)
	}
}
