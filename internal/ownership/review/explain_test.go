// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// memory is a fake of the store's records and history.
type memory struct {
	deletion.Records
	deletion.History
	records []deletion.Record
	ends    []deletion.End
	// states are objects that had the same state at all revisions.
	states []*unstructured.Unstructured
	// lost is the error with which reads of the history fail.
	lost error
}

func (m *memory) At(_ context.Context, resource schema.GroupResource, namespace, name string, _ int64) (*unstructured.Unstructured, error) {
	for _, o := range m.states {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewResourceExpired("not retained any more")
}

func (m *memory) ByName(_ context.Context, resource schema.GroupResource, namespace, name string) ([]deletion.Record, error) {
	found := slices.DeleteFunc(slices.Clone(m.records), func(r deletion.Record) bool {
		return r.Resource != resource || r.Namespace != namespace || r.Name != name
	})
	slices.SortStableFunc(found, func(a, b deletion.Record) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	return found, nil
}

// First returns no changes.
func (m *memory) First(context.Context, schema.GroupResource, string, func(string, string) bool) iter.Seq2[*unstructured.Unstructured, error] {
	return func(func(*unstructured.Unstructured, error) bool) {}
}

func (m *memory) LastDeletion(_ context.Context, resource schema.GroupResource, namespace, name string) (*deletion.End, error) {
	if m.lost != nil {
		return nil, m.lost
	}
	for _, e := range m.ends {
		if e.Object.GetNamespace() == namespace && e.Object.GetName() == name {
			return &e, nil
		}
	}
	return nil, apierrors.NewNotFound(resource, name)
}

var (
	kubectl    = deletion.Caller{User: "jane", Agent: "kubectl/v1.37.1"}
	operator   = deletion.Caller{User: "system:serviceaccount:shop:operator", Agent: "manager/v1.14"}
	collecting = deletion.Caller{User: "system:serviceaccount:kube-system:generic-garbage-collector"}
)

// deleted adds the record of a deletion, a number of seconds after the start. The UID is the name.
func (m *memory) deleted(r graph.Resource, namespace, name string, at int, by deletion.Caller, owners func(*unstructured.Unstructured)) {
	record := deletion.Record{
		Resource: r.GroupResource(), Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "7",
		Time: metav1.NewMicroTime(time.Unix(int64(at), 0)), By: by, Policy: metav1.DeletePropagationBackground,
	}
	if by == collecting {
		record.Owners = writtenBy(owners)
	} else {
		record.References = writtenBy(owners)
	}
	record.Revision = int64(10 * at)
	m.records = append(m.records, record)
}

// was adds the state of an object, the same at all times.
func (m *memory) was(r graph.Resource, namespace, name string, changes ...func(*unstructured.Unstructured)) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID(name))
	for _, change := range changes {
		change(o)
	}
	m.states = append(m.states, o)
}

func (m *memory) ended(r graph.Resource, namespace, name string, owners func(*unstructured.Unstructured)) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetOwnerReferences(writtenBy(owners))
	m.ends = append(m.ends, deletion.End{Object: o, Revision: 600, Time: time.Unix(60, 0)})
}

func writtenBy(owners func(*unstructured.Unstructured)) []metav1.OwnerReference {
	o := &unstructured.Unstructured{}
	if owners != nil {
		owners(o)
	}
	return o.GetOwnerReferences()
}

func (w *world) explain(m *memory, ref ownership.ObjectReference) (ownership.OwnershipExplanationStatus, error) {
	w.t.Helper()
	return w.explainSpec(m, ownership.OwnershipExplanationSpec{Object: ref})
}

func (w *world) explainSpec(m *memory, spec ownership.OwnershipExplanationSpec) (ownership.OwnershipExplanationStatus, error) {
	w.t.Helper()
	reviews := w.reviews()
	sources := *reviews.connected()
	sources.Records, sources.History = m, m
	reviews.Connect(sources)
	review := &ownership.OwnershipExplanation{Spec: spec}
	err := w.create(reviews.OwnershipExplanations(w.policy()), review)
	return review.Status, err
}

func pod(name string) ownership.ObjectReference {
	return ownership.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: name}
}

// story summarizes an explanation: which object was deleted, by what kind of agent and because of
// which owner.
func story(s ownership.OwnershipExplanationStatus) []string {
	said := []string{string(s.State)}
	for _, o := range s.Owners {
		said = append(said, fmt.Sprintf("owner %s %s", o.Name, o.Standing))
	}
	for _, w := range s.WaitsFor {
		said = append(said, "waits: "+blockText(w.DeletionBlock)+": "+w.Message)
	}
	tell := func(what string, deletions []ownership.ExplainedDeletion) {
		for _, d := range deletions {
			var because []string
			for _, b := range d.Because {
				because = append(because, b.Kind+"/"+b.Name)
			}
			for _, b := range d.InvalidOwners {
				because = append(because, "invalid "+b.Kind+"/"+b.Name)
			}
			said = append(said, strings.TrimSpace(fmt.Sprintf("%s%s/%s by %s %s", what, d.Object.Kind, d.Object.Name, d.By.Kind, strings.Join(because, ","))))
		}
	}
	tell("", s.Deletions)
	tell("earlier ", s.Earlier)
	return append(said, s.Messages...)
}

func TestExplanations(t *testing.T) {
	deletionTime := metav1.NewTime(time.Unix(1000, 0))
	for name, tt := range map[string]struct {
		given func(w *world, m *memory)
		ask   ownership.ObjectReference
		want  []string
	}{
		"without an owner": {func(w *world, _ *memory) { w.add(pods, "a", "one", nil) }, pod("one"), []string{"Living"}},
		"owned": {func(w *world, _ *memory) {
			w.add(configMaps, "a", "owner", nil)
			w.add(pods, "a", "one", ownedBy(configMaps, "owner"))
		}, pod("one"), []string{"Living", "owner owner Solid"}},
		"held": {func(w *world, m *memory) {
			w.add(pods, "a", "one", held(func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&deletionTime) }, "batch.kubernetes.io/job-tracking"))
			m.deleted(pods, "a", "one", 1, kubectl, nil)
		}, pod("one"), []string{"Terminating", "waits: batch.kubernetes.io/job-tracking: the Job controller removes it when it has counted the pod", "Pod/one by User"}},
		"stopping": {func(w *world, _ *memory) {
			w.add(pods, "a", "one", func(o *unstructured.Unstructured) {
				o.SetDeletionTimestamp(&deletionTime)
				_ = unstructured.SetNestedField(o.Object, "n1", "spec", "nodeName")
			})
		}, pod("one"), []string{"Terminating", "Pod/one by Unknown", "node n1 has to stop its containers first; they are killed by 1970-01-01T00:16:40Z at the latest"}},
		"a namespace with content": {func(w *world, m *memory) {
			w.add(spaces, "", "a", func(o *unstructured.Unstructured) {
				o.SetDeletionTimestamp(&deletionTime)
				_ = unstructured.SetNestedSlice(o.Object, []any{
					map[string]any{"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances"},
					map[string]any{"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "All resources successfully discovered"},
				}, "status", "conditions")
			})
			m.deleted(spaces, "", "a", 1, kubectl, nil)
		}, ownership.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "a"}, []string{"Terminating", "Namespace/a by User", "Some resources are remaining: pods. has 1 resource instances"}},
		"a cascade": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.deleted(jobs, "a", "middle", 2, collecting, ownedBy(configMaps, "root"))
			m.deleted(pods, "a", "one", 3, collecting, ownedBy(jobs, "middle"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Job/middle", "Job/middle by GarbageCollector ConfigMap/root", "ConfigMap/root by User"}},
		"two owners with a common owner": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.deleted(jobs, "a", "left", 2, collecting, ownedBy(configMaps, "root"))
			m.deleted(jobs, "a", "right", 2, collecting, ownedBy(configMaps, "root"))
			m.deleted(pods, "a", "one", 3, collecting, ownedBy(jobs, "left", "right"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Job/left,Job/right", "Job/left by GarbageCollector ConfigMap/root", "Job/right by GarbageCollector ConfigMap/root", "ConfigMap/root by User"}},
		"owners in a cycle": {func(_ *world, m *memory) {
			m.deleted(pods, "a", "one", 1, collecting, ownedBy(pods, "two"))
			m.deleted(pods, "a", "two", 1, collecting, ownedBy(pods, "one"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Pod/two", "Pod/two by GarbageCollector Pod/one"}},
		"an owner that never existed": {func(_ *world, m *memory) {
			m.deleted(pods, "a", "one", 1, collecting, ownedBy(jobs, "never"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Job/never", "Job/never by Unknown"}},
		"an owner of another UID": {func(_ *world, m *memory) {
			m.deleted(jobs, "a", "job", 1, kubectl, nil)
			m.records[0].UID = "later"
			m.deleted(pods, "a", "one", 1, collecting, ownedBy(jobs, "job"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Job/job", "Job/job by Unknown"}},
		"requested by one client, completed by another": {func(_ *world, m *memory) {
			m.deleted(pods, "a", "one", 1, kubectl, nil)
			m.deleted(pods, "a", "one", 2, collecting, nil)
		}, pod("one"), []string{"Gone", "Pod/one by User"}},
		"with its namespace": {func(_ *world, m *memory) {
			m.deleted(spaces, "", "a", 1, kubectl, nil)
			m.deleted(pods, "a", "one", 2, deletion.Caller{User: "system:serviceaccount:kube-system:namespace-controller", Agent: "kube-controller-manager/v1.37"}, nil)
		}, pod("one"), []string{"Gone", "Pod/one by Controller Namespace/a", "Namespace/a by User"}},
		"with its definition": {func(_ *world, m *memory) {
			m.deleted(crds, "", "widgets.example.com", 1, kubectl, nil)
			m.deleted(widgets, "a", "one", 2, deletion.Caller{User: "system:apiserver"}, nil)
		}, ownership.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "a", Name: "one"},
			[]string{"Gone", "Widget/one by Server CustomResourceDefinition/widgets.example.com", "CustomResourceDefinition/widgets.example.com by User"}},
		"a lost record": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.ended(pods, "a", "one", ownedBy(configMaps, "root"))
		}, pod("one"), []string{"Gone", "Pod/one by Unknown ConfigMap/root", "ConfigMap/root by User"}},
		"no record, and an existing owner": {func(w *world, m *memory) {
			w.add(configMaps, "a", "root", nil)
			m.ended(pods, "a", "one", ownedBy(configMaps, "root"))
		}, pod("one"), []string{"Gone", "Pod/one by Unknown"}},
		"by an operator, with its owner": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.deleted(jobs, "a", "middle", 2, operator, ownedBy(configMaps, "root"))
			m.deleted(pods, "a", "one", 3, collecting, ownedBy(jobs, "middle"))
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector Job/middle", "Job/middle by ServiceAccount ConfigMap/root", "ConfigMap/root by User"}},
		"by an operator, with an owner of its owner": {func(_ *world, m *memory) {
			m.was(jobs, "a", "middle", ownedBy(configMaps, "root"))
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.deleted(pods, "a", "one", 3, operator, ownedBy(jobs, "middle"))
		}, pod("one"), []string{"Gone", "Pod/one by ServiceAccount ConfigMap/root", "ConfigMap/root by User"}},
		"by an operator, without a record of its owner": {func(_ *world, m *memory) {
			m.was(jobs, "a", "middle", func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&deletionTime) })
			m.deleted(pods, "a", "one", 3, operator, ownedBy(jobs, "middle"))
		}, pod("one"), []string{"Gone", "Pod/one by ServiceAccount Job/middle", "Job/middle by Unknown"}},
		"by an operator, before its owner": {func(_ *world, m *memory) {
			m.was(configMaps, "a", "root")
			m.deleted(pods, "a", "one", 1, operator, ownedBy(configMaps, "root"))
			m.deleted(configMaps, "a", "root", 2, kubectl, nil)
		}, pod("one"), []string{"Gone", "Pod/one by ServiceAccount"}},
		"by an operator, while its owner orphans it": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.records[0].Policy = metav1.DeletePropagationOrphan
			m.deleted(pods, "a", "one", 2, operator, ownedBy(configMaps, "root"))
		}, pod("one"), []string{"Gone", "Pod/one by ServiceAccount"}},
		"by a person, while its owner is being deleted": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 1, kubectl, nil)
			m.deleted(pods, "a", "one", 2, kubectl, ownedBy(configMaps, "root"))
		}, pod("one"), []string{"Gone", "Pod/one by User"}},
		"an owner in another namespace": {func(_ *world, m *memory) {
			m.deleted(pods, "a", "one", 3, collecting, ownedBy(configMaps, "astray"))
			m.records[0].InOtherNamespace = []types.UID{"astray"}
		}, pod("one"), []string{"Gone", "Pod/one by GarbageCollector invalid ConfigMap/astray"}},
		"an owner in another namespace, without a record": {func(w *world, m *memory) {
			w.add(configMaps, "b", "astray", nil)
			m.ended(pods, "a", "one", ownedBy(configMaps, "astray"))
		}, pod("one"), []string{"Gone", "Pod/one by Unknown invalid ConfigMap/astray"}},
		"a lost record, and one of an object with the same name": {func(_ *world, m *memory) {
			m.deleted(configMaps, "a", "root", 2, kubectl, nil)
			m.deleted(pods, "a", "one", 1, kubectl, nil)
			m.records[1].UID = "before"
			m.ended(pods, "a", "one", ownedBy(configMaps, "root"))
		}, pod("one"), []string{"Gone", "Pod/one by Unknown ConfigMap/root", "ConfigMap/root by User", "earlier Pod/one by User"}},
		"namesakes": {func(w *world, m *memory) {
			w.add(pods, "a", "one", nil)
			m.deleted(pods, "a", "one", 1, kubectl, nil)
			m.records[0].UID = "before"
		}, pod("one"), []string{"Living", "earlier Pod/one by User"}},
		"an object with the same name, by its UID": {func(w *world, m *memory) {
			w.add(pods, "a", "one", nil)
			m.deleted(pods, "a", "one", 1, kubectl, nil)
			m.records[0].UID = "before"
		}, ownership.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "one", UID: "before"}, []string{"Gone", "Pod/one by User"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorld(t), &memory{}
			tt.given(w, m)
			s, err := w.explain(m, tt.ask)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tt.want, story(s)); diff != "" {
				t.Error(diff)
			}
			if s.Object.Name != tt.ask.Name || s.Object.UID == "" {
				t.Errorf("the object is %+v", s.Object)
			}
		})
	}
}

// TestExplanationsHide: a caller learns nothing about objects that it may not read, not even that
// they existed.
func TestExplanationsHide(t *testing.T) {
	w, m := newWorld(t), &memory{}
	m.deleted(configMaps, "a", "root", 1, kubectl, nil)
	m.deleted(pods, "a", "one", 3, collecting, ownedBy(configMaps, "root"))
	w.allowed = func(a authorizer.Attributes) bool { return a.GetResource() == "pods" }
	s, err := w.explain(m, pod("one"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]string{"Gone", "Pod/one by GarbageCollector"}, story(s)); diff != "" || s.Hidden != 1 || s.Deletions[0].Hidden != 1 {
		t.Errorf("hidden %d: %s", s.Hidden, diff)
	}
	if text := fmt.Sprint(s); strings.Contains(text, "root") {
		t.Errorf("an owner that the caller may not read is named: %s", text)
	}
	for _, name := range []string{"root", "never"} {
		_, err = w.explain(m, ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: name})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.explain(m, pod("never")); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "no deleted object of this name is known") {
		t.Errorf("an object that never existed: %v", err)
	}
	if _, err := w.explain(m, ownership.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "a"}); !apierrors.IsInvalid(err) {
		t.Errorf("without a name: %v", err)
	}
}

// TestExplanationsHideOwnersElsewhere: a caller who may read everything in namespace a does not
// learn the name of an owner in another namespace, whether or not it still exists.
func TestExplanationsHideOwnersElsewhere(t *testing.T) {
	for name, exists := range map[string]bool{"existing": true, "gone": false} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorld(t), &memory{}
			m.deleted(pods, "a", "one", 3, collecting, ownedBy(configMaps, "astray"))
			m.records[0].InOtherNamespace = []types.UID{"astray"}
			if exists {
				w.add(configMaps, "b", "astray", nil)
			}
			w.allowed = func(a authorizer.Attributes) bool { return a.GetNamespace() == "a" }
			s, err := w.explain(m, pod("one"))
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(s); strings.Contains(text, "astray") || s.Deletions[0].Hidden != 1 {
				t.Errorf("hidden %d: %s", s.Deletions[0].Hidden, text)
			}
		})
	}
}

// TestExplanationsAreOrdered: the history has times to the minute, and no effect is reported before
// its cause.
func TestExplanationsAreOrdered(t *testing.T) {
	w, m := newWorld(t), &memory{}
	m.deleted(configMaps, "a", "root", 72, kubectl, nil)
	m.ended(jobs, "a", "middle", ownedBy(configMaps, "root")) // at 60, according to the history
	m.ended(pods, "a", "one", ownedBy(jobs, "middle"))
	s, err := w.explain(m, pod("one"))
	if err != nil || len(s.Deletions) != 3 {
		t.Fatal(err, s)
	}
	for _, d := range s.Deletions {
		if d.Time.Unix() != 72 {
			t.Errorf("%s was deleted at %d", d.Object.Name, d.Time.Unix())
		}
	}
	m.ends[0].Time = time.Unix(120, 0)
	if s, err = w.explain(m, pod("one")); err != nil || s.Deletions[0].Time.Unix() != 120 || s.Deletions[1].Time.Unix() != 120 || s.Deletions[2].Time.Unix() != 72 {
		t.Errorf("a minute later: %v, %+v", err, s.Deletions)
	}
}

// TestExplanationsWithoutHistory checks that recorded deletions are shown even if the history
// cannot be read.
func TestExplanationsWithoutHistory(t *testing.T) {
	w, m := newWorld(t), &memory{lost: apierrors.NewInternalError(errors.New("decrypt: no key"))}
	if _, err := w.explain(m, pod("one")); !apierrors.IsInternalError(err) {
		t.Errorf("without a record: %v", err)
	}
	m.deleted(pods, "a", "one", 1, kubectl, nil)
	s, err := w.explain(m, pod("one"))
	if err != nil || len(s.Deletions) != 1 || len(s.Messages) != 1 || !strings.Contains(s.Messages[0], "it is not known whether another Pod one was deleted later") {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestKindsOfAgents(t *testing.T) {
	for user, want := range map[[2]string]ownership.AgentKind{
		{"kubernetes-admin", "kubectl/v1"}:                                                        ownership.AgentUser,
		{"system:serviceaccount:shop:deployer", "helm/3"}:                                         ownership.AgentServiceAccount,
		{"system:serviceaccount:kube-system:mine", "mine/1"}:                                      ownership.AgentServiceAccount,
		{"system:serviceaccount:shop:liar", "kube-controller-manager/v1"}:                         ownership.AgentServiceAccount,
		{"system:serviceaccount:kube-system:replicaset-controller", "kube-controller-manager/v1"}: ownership.AgentController,
		{"system:kube-scheduler", ""}:                                                             ownership.AgentController,
		{"system:node:n1", "kubelet/v1"}:                                                          ownership.AgentNode,
		{"kindred:simulated-nodes", "kubelet/v1"}:                                                 ownership.AgentNode,
		{"system:serviceaccount:kube-system:generic-garbage-collector", ""}:                       ownership.AgentGarbageCollector,
		{"system:apiserver", ""}:                                                                  ownership.AgentServer,
	} {
		if got := kindOf(deletion.Caller{User: user[0], Agent: user[1]}); got != want {
			t.Errorf("%v is a %s, want %s", user, got, want)
		}
	}
}
