// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/discovery"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clientrest "k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// discovered serves widgets in two versions, of which v1 is preferred, and all other kinds in one.
func discovered() discovery.ServerResourcesInterface {
	var lists []*metav1.APIResourceList
	for _, r := range servedKinds {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: r.GroupVersion().String(), APIResources: []metav1.APIResource{
			{Name: r.GroupVersionResource.Resource, Kind: r.Kind}, {Name: r.GroupVersionResource.Resource + "/status", Kind: r.Kind},
		}})
	}
	lists = append(lists, &metav1.APIResourceList{GroupVersion: "example.com/v1beta1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}})
	return &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: lists}}
}

func (w *world) lint(spec ownership.OwnershipLintSpec) (ownership.OwnershipLintStatus, error) {
	w.t.Helper()
	review := &ownership.OwnershipLint{Spec: spec}
	err := w.create(w.reviews().OwnershipLints(w.policy()), review)
	return review.Status, err
}

// found returns the findings as "namespace/name: rule".
func found(s ownership.OwnershipLintStatus) []string {
	var all []string
	for _, f := range s.Findings {
		all = append(all, fmt.Sprintf("%s/%s: %s", f.Object.Namespace, f.Object.Name, f.Rule))
	}
	return all
}

// inVersion makes an object's references name their owners in another version than the observed
// one.
func inVersion(version string, change func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		change(o)
		refs := o.GetOwnerReferences()
		for i := range refs {
			refs[i].APIVersion = version
		}
		o.SetOwnerReferences(refs)
	}
}

func labelled(change func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if change != nil {
			change(o)
		}
		o.SetLabels(map[string]string{"app.kubernetes.io/instance": "shop"})
	}
}

// strip removes the references of an object, as a backup tool does.
func (w *world) strip(name types.UID) {
	w.t.Helper()
	for _, o := range w.objects {
		u := o.(*unstructured.Unstructured)
		if u.GetUID() != name {
			continue
		}
		w.version++
		u.SetResourceVersion(fmt.Sprint(w.version))
		u.SetOwnerReferences(nil)
		for _, r := range servedKinds {
			if r.Kind == u.GetKind() {
				w.graph.Observe(r.GroupResource(), u)
			}
		}
	}
}

// faulty returns a world with faults in two namespaces.
func faulty(t *testing.T) *world {
	w := newWorld(t)
	w.add(widgets, "a", "root", nil)
	w.add(configMaps, "a", "old", inVersion("example.com/v1beta1", ownedBy(widgets, "root")))
	w.add(configMaps, "a", "older", inVersion("example.com/v1alpha1", ownedBy(widgets, "root")))
	w.add(configMaps, "a", "lost", ownedBy(widgets, "root"))
	w.add(pods, "a", "below-lost", ownedBy(configMaps, "lost"))
	w.strip("lost")
	w.add(pods, "a", "one", labelled(ownedBy(widgets, "root")))
	w.add(pods, "a", "two", labelled(ownedBy(widgets, "root")))
	w.add(pods, "a", "bare", labelled(nil))
	w.add(pods, "b", "astray", ownedBy(widgets, "root"))
	w.add(pods, "b", "unknown", inVersion("gone.example.com/v1", ownedBy(widgets, "root")))
	return w
}

func TestLint(t *testing.T) {
	p := []string{"a/lost: lost-reference", "a/old: stale-version", "a/older: unserved-version", "a/bare: no-owner"}
	there := []string{"b/astray: cross-namespace", "b/astray: block-owner-deletion", "b/unknown: unserved-kind", "b/unknown: block-owner-deletion"}
	root := &ownership.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "a", Name: "root"}
	lost := &ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "lost"}
	for name, tt := range map[string]struct {
		spec    ownership.OwnershipLintSpec
		want    []string
		checked int32
	}{
		"everything":         {want: append(p, there...), checked: 10},
		"a namespace":        {ownership.OwnershipLintSpec{Namespace: "b"}, there, 2},
		"an empty namespace": {ownership.OwnershipLintSpec{Namespace: "c"}, nil, 0},
		"a tree":             {ownership.OwnershipLintSpec{Object: root}, p, 7},
		"a leaf":             {ownership.OwnershipLintSpec{Object: lost}, p[:1], 2},
		"another project":    {spec: ownership.OwnershipLintSpec{Profile: ownership.ProfileClusterAPI}},
		"rules":              {ownership.OwnershipLintSpec{Namespace: "a", Rules: []ownership.LintRule{"no-owner", "stale-version"}}, []string{p[1], p[3]}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := faulty(t).lint(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, found(s)); diff != "" || s.Hidden != 0 || len(s.Warnings) > 0 {
				t.Errorf("hidden %d, warnings %v, findings (-want +got):\n%s", s.Hidden, s.Warnings, diff)
			}
			if s.Checked != tt.checked {
				t.Errorf("%d objects were checked, want %d", s.Checked, tt.checked)
			}
		})
	}
}

// TestLintGone: an object that is deleted while it is checked has no findings, although its labels can no longer be read.
func TestLintGone(t *testing.T) {
	cluster := func(w *world) {
		w.add(clusters, "a", "c", nil)
		w.add(infraClusters, "a", "i", func(o *unstructured.Unstructured) {
			ownedBy(clusters, "c")(o)
			o.SetLabels(map[string]string{clusterapi.TopologyOwnedLabel: ""})
		})
	}
	for name, tt := range map[string]struct {
		spec ownership.OwnershipLintSpec
		fill func(*world)
		gone types.UID
	}{
		"under a profile": {ownership.OwnershipLintSpec{Profile: ownership.ProfileClusterAPI}, cluster, "i"},
		"its owner":       {ownership.OwnershipLintSpec{Profile: ownership.ProfileClusterAPI}, cluster, "c"},
		"without an owner": {ownership.OwnershipLintSpec{}, func(w *world) {
			w.add(widgets, "a", "root", nil)
			w.add(pods, "a", "one", labelled(ownedBy(widgets, "root")))
			w.add(pods, "a", "two", labelled(ownedBy(widgets, "root")))
			w.add(pods, "a", "bare", labelled(nil))
		}, "bare"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.fill(w)
			w.objects = slices.DeleteFunc(w.objects, func(o runtime.Object) bool { return o.(*unstructured.Unstructured).GetUID() == tt.gone })
			s, err := w.lint(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Findings) > 0 || len(s.Warnings) > 0 {
				t.Errorf("findings %v, warnings %v", s.Findings, s.Warnings)
			}
		})
	}
}

// TestLintUnlabelled: objects that may be got and not listed are not compared with a profile, and a warning says so.
func TestLintUnlabelled(t *testing.T) {
	w := newWorld(t)
	w.add(clusters, "a", "c", nil)
	w.add(infraClusters, "a", "i", ownedBy(clusters, "c"))
	w.unlisted = infraClusters.GroupVersionResource.Resource
	s, err := w.lint(ownership.OwnershipLintSpec{Profile: ownership.ProfileClusterAPI})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) > 0 || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "the labels of "+w.unlisted) {
		t.Errorf("findings %v, warnings %v", s.Findings, s.Warnings)
	}
}

// TestLintFixes checks that fixes are complete: a client could apply them itself.
// TestLintLooksUpOwners: an owner that exists, and that the graph has not got yet, is no fault. One that does not exist is.
func TestLintLooksUpOwners(t *testing.T) {
	w := newWorld(t)
	w.add(widgets, "a", "root", nil)
	for _, name := range []string{"one", "two"} {
		w.add(pods, "a", name, ownedBy(widgets, "root", "late"))
	}
	check := func(want ...string) {
		t.Helper()
		s, err := w.lint(ownership.OwnershipLintSpec{Rules: []ownership.LintRule{ownership.RuleNeverExisted}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, found(s)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	}
	check("a/one: never-existed", "a/two: never-existed")
	late := &unstructured.Unstructured{}
	late.SetGroupVersionKind(widgets.GroupVersion().WithKind(widgets.Kind))
	late.SetNamespace("a")
	late.SetName("late")
	late.SetUID("late")
	w.objects = append(w.objects, late)
	check()
}

func TestLintFixes(t *testing.T) {
	w := faulty(t)
	s, err := w.lint(ownership.OwnershipLintSpec{Namespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	root := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "root", UID: "root", Controller: new(true), BlockOwnerDeletion: new(true)}
	want := map[string]*ownership.LintFix{
		"lost":  {Description: "restore the reference to Widget root", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{root}},
		"old":   {Description: "name Widget root in version example.com/v1", ResourceVersion: "3", OwnerReferences: []metav1.OwnerReference{root}},
		"older": {Description: "name Widget root in version example.com/v1", ResourceVersion: "4", OwnerReferences: []metav1.OwnerReference{root}},
		"bare":  nil,
	}
	got := map[string]*ownership.LintFix{}
	for _, f := range s.Findings {
		got[f.Object.Name] = f.Fix
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fixes (-want +got):\n%s", diff)
	}
}

// TestLintHidesWhatIsHidden: objects that the caller may not read are counted; they are not shown,
// and nothing is concluded from them.
func TestLintHidesWhatIsHidden(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed func(authorizer.Attributes) bool
		want    []string
		hidden  int32
	}{
		"nothing may be read": {func(authorizer.Attributes) bool { return false }, nil, 10},
		"no owners": {func(a authorizer.Attributes) bool { return a.GetResource() != "widgets" },
			// Every user may know which kinds and versions are served.
			[]string{"a/old: stale-version", "a/older: unserved-version", "a/bare: no-owner", "b/unknown: unserved-kind", "b/unknown: block-owner-deletion"}, 1},
		"no siblings": {func(a authorizer.Attributes) bool {
			return a.GetResource() == "widgets" || a.GetName() == "bare"
		}, nil, 8},
		"one namespace": {func(a authorizer.Attributes) bool { return a.GetNamespace() == "b" },
			// The finding does not reveal that the owner exists in another namespace.
			[]string{"b/astray: never-existed", "b/unknown: unserved-kind", "b/unknown: block-owner-deletion"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := faulty(t)
			w.allowed = tt.allowed
			s, err := w.lint(ownership.OwnershipLintSpec{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, found(s)); diff != "" || s.Hidden != tt.hidden {
				t.Errorf("hidden %d, want %d; findings (-want +got):\n%s", s.Hidden, tt.hidden, diff)
			}
		})
	}
	w := faulty(t)
	w.allowed = func(authorizer.Attributes) bool { return false }
	for _, name := range []string{"root", "nothing"} {
		_, err := w.lint(ownership.OwnershipLintSpec{Object: &ownership.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "a", Name: name}})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLintRefusals(t *testing.T) {
	for want, spec := range map[string]ownership.OwnershipRepairSpec{
		"spec.namespace: Invalid":                   {OwnershipLintSpec: ownership.OwnershipLintSpec{Namespace: "A_b"}},
		"spec.object.kind: Required":                {OwnershipLintSpec: ownership.OwnershipLintSpec{Object: &ownership.ObjectReference{APIVersion: "v1", Name: "x"}}},
		"spec.object.name: Required":                {OwnershipLintSpec: ownership.OwnershipLintSpec{Object: &ownership.ObjectReference{APIVersion: "v1", Kind: "Pod"}}},
		"spec.namespace: Forbidden":                 {OwnershipLintSpec: ownership.OwnershipLintSpec{Namespace: "a", Object: &ownership.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "x"}}},
		`spec.rules[1]: Unsupported value: "owner"`: {OwnershipLintSpec: ownership.OwnershipLintSpec{Rules: []ownership.LintRule{"cycle", "owner"}}},
		`spec.profile: Unsupported value: "other"`:  {OwnershipLintSpec: ownership.OwnershipLintSpec{Profile: "other"}},
		"spec.preconditions[0].uid: Required":       {Preconditions: []ownership.RepairPrecondition{{ResourceVersion: "1"}}},
		"spec.preconditions[0].resourceVersion: R":  {Preconditions: []ownership.RepairPrecondition{{UID: "x"}}},
		"spec.preconditions[1].uid: Duplicate":      {Preconditions: []ownership.RepairPrecondition{{UID: "x", ResourceVersion: "1"}, {UID: "x", ResourceVersion: "2"}}},
	} {
		w := newWorld(t)
		if err := w.create(w.reviews().OwnershipRepairs(w.policy()), &ownership.OwnershipRepair{Spec: spec}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := w.lint(spec.OwnershipLintSpec); len(spec.Preconditions) == 0 && !apierrors.IsInvalid(err) {
			t.Errorf("a lint: %v, want %s", err, want)
		}
	}
}

// silent is a discovery that fails for one version.
type silent struct {
	discovery.ServerResourcesInterface
	version schema.GroupVersion
}

func (s silent) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, _ := s.ServerResourcesInterface.ServerGroupsAndResources()
	for i, list := range lists {
		if list.GroupVersion == s.version.String() {
			lists = append(lists[:i:i], lists[i+1:]...)
			break
		}
	}
	return groups, lists, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{s.version: errors.New("no answer")}}
}

// TestSilentVersionsAreNotUnserved: if discovery of a group is incomplete, its versions are not
// checked.
func TestSilentVersionsAreNotUnserved(t *testing.T) {
	w := faulty(t)
	reviews := w.reviews()
	sources := *reviews.connected()
	sources.Discovery = silent{sources.Discovery, schema.GroupVersion{Group: "example.com", Version: "v1"}}
	reviews.Connect(sources)
	review := &ownership.OwnershipLint{Spec: ownership.OwnershipLintSpec{Namespace: "a"}}
	if err := w.create(reviews.OwnershipLints(w.policy()), review); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/lost: lost-reference", "a/bare: no-owner"}, found(review.Status)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if len(review.Status.Warnings) != 1 || !strings.Contains(review.Status.Warnings[0], "example.com/v1 does not respond") {
		t.Errorf("warnings %q", review.Status.Warnings)
	}
}

// TestRepair repairs a faulty world and checks the requests and the result for each finding. The
// API answers as the case says.
func TestRepair(t *testing.T) {
	const lostPatch = `{"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":"root","uid":"root","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"7","uid":"lost"}}`
	only := func(rules ...ownership.LintRule) ownership.OwnershipRepairSpec {
		return ownership.OwnershipRepairSpec{OwnershipLintSpec: ownership.OwnershipLintSpec{Namespace: "a", Rules: rules}}
	}
	with := func(spec ownership.OwnershipRepairSpec, change func(*ownership.OwnershipRepairSpec)) ownership.OwnershipRepairSpec {
		change(&spec)
		return spec
	}
	lost := only(ownership.RuleLostReference)
	for name, tt := range map[string]struct {
		spec     ownership.OwnershipRepairSpec
		dryRun   bool // the request itself is a dry run
		answer   error
		requests []string
		want     []string
	}{
		"applied": {spec: lost,
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost " + lostPatch}, want: []string{"lost Applied "}},
		"dry run": {spec: with(lost, func(s *ownership.OwnershipRepairSpec) { s.DryRun = true }),
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost?dryRun=All " + lostPatch}, want: []string{"lost WouldApply "}},
		"a request that is a dry run": {spec: lost, dryRun: true,
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost?dryRun=All " + lostPatch}, want: []string{"lost WouldApply "}},
		"changed in between": {spec: lost, answer: apierrors.NewConflict(configMaps.GroupResource(), "lost", errors.New("modified")),
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost " + lostPatch}, want: []string{"lost Skipped the object has changed since it was checked"}},
		"deleted in between": {spec: lost, answer: apierrors.NewNotFound(configMaps.GroupResource(), "lost"),
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost " + lostPatch}, want: []string{"lost Skipped the object was deleted"}},
		"not allowed": {spec: lost, answer: apierrors.NewForbidden(configMaps.GroupResource(), "lost", errors.New("jane may not")),
			requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost " + lostPatch}, want: []string{`lost Skipped configmaps "lost" is forbidden: jane may not`}},
		"no safe fix": {spec: only(ownership.RuleNoOwner), want: []string{"bare Skipped no change is safe; decide by hand"}},
		"unchanged since it was seen": {spec: with(lost, func(s *ownership.OwnershipRepairSpec) {
			s.Preconditions = []ownership.RepairPrecondition{{UID: "lost", ResourceVersion: "7"}}
		}), requests: []string{"PATCH /api/v1/namespaces/a/configmaps/lost " + lostPatch}, want: []string{"lost Applied "}},
		"changed since it was seen": {spec: with(lost, func(s *ownership.OwnershipRepairSpec) {
			s.Preconditions = []ownership.RepairPrecondition{{UID: "lost", ResourceVersion: "6"}}
		}), want: []string{"lost Skipped the object has changed since it was checked"}},
		"not selected": {spec: with(lost, func(s *ownership.OwnershipRepairSpec) {
			s.Preconditions = []ownership.RepairPrecondition{{UID: "other", ResourceVersion: "7"}}
		}), want: []string{"lost Skipped the object is not listed in the preconditions"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := faulty(t)
			var requests []string
			api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				requests = append(requests, fmt.Sprintf("%s %s %s", req.Method, req.URL, body))
				answerPatch(out, tt.answer)
			}))
			defer api.Close()
			var callers []string
			reviews := w.reviews()
			sources := *reviews.connected()
			sources.ConfigFor = func(caller user.Info, agent string) *clientrest.Config {
				callers = append(callers, caller.GetName()+" by "+agent)
				return &clientrest.Config{Host: api.URL, ContentConfig: clientrest.ContentConfig{ContentType: "application/json"}}
			}
			reviews.Connect(sources)
			review, options := &ownership.OwnershipRepair{Spec: tt.spec}, &metav1.CreateOptions{}
			if tt.dryRun {
				options.DryRun = []string{metav1.DryRunAll}
			}
			ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
			if _, err := reviews.OwnershipRepairs(w.policy()).(rest.Creater).Create(ctx, review, nil, options); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range review.Status.Results {
				got = append(got, fmt.Sprintf("%s %s %s", r.Object.Name, r.Outcome, r.Reason))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.requests, requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"jane by ownership-repair"}, callers); diff != "" {
				t.Errorf("user agents (-want +got):\n%s", diff)
			}
			if s := review.Status; s.Checked != 8 || int(s.Applied+s.Skipped) != len(s.Results) {
				t.Errorf("checked %d, applied %d, skipped %d", s.Checked, s.Applied, s.Skipped)
			}
		})
	}
}

// answerPatch answers with an object whose state the collector has observed, or with an error.
func answerPatch(out http.ResponseWriter, refusal error) {
	out.Header().Set("Content-Type", "application/json")
	var status apierrors.APIStatus
	if errors.As(refusal, &status) {
		out.WriteHeader(int(status.Status().Code))
		s := status.Status()
		_, _ = fmt.Fprintf(out, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, s.Reason, s.Code, s.Message)
		return
	}
	_, _ = io.WriteString(out, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"namespace":"a","name":"lost","uid":"lost","resourceVersion":"7"}}`)
}
