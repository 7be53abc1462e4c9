// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred"
	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
)

// review creates a review and returns the answer, as any client of the API does.
func review[T any](t *testing.T, config *rest.Config, resource, kind string, question T) (T, error) {
	t.Helper()
	var answer T
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return answer, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&question)
	if err != nil {
		return answer, err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(ownership.SchemeGroupVersion.WithKind(kind))
	object, err = client.Resource(ownership.SchemeGroupVersion.WithResource(resource)).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		return answer, err
	}
	return answer, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &answer)
}

// TestPreviewsComeTrue creates random graphs on a real server, previews the deletion of one or more
// objects, deletes them, and compares.
func TestPreviewsComeTrue(t *testing.T) {
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	client := client(t, cluster)
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := randomGraph{t: t, client: client, rng: rand.New(rand.NewPCG(seed, 0)), namespace: fmt.Sprintf("graph-%d", seed)}
			g.make(30)
			g.awaitObserved(cluster.Config())
			policy := policies[seed%uint64(len(policies))]
			var targets []ownership.DeletionTarget
			for _, i := range g.rng.Perm(10)[:1+g.rng.IntN(3)] {
				targets = append(targets, ownership.DeletionTarget{APIVersion: "v1", Kind: "ConfigMap", Namespace: g.namespace, Name: g.objects[i].Name})
			}
			preview, err := review(t, cluster.Config(), "deletionpreviews", "DeletionPreview", ownership.DeletionPreview{
				Spec: ownership.DeletionPreviewSpec{Targets: targets, PropagationPolicy: &policy},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, target := range targets {
				err := client.CoreV1().ConfigMaps(g.namespace).Delete(t.Context(), target.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
				if err != nil && !apierrors.IsNotFound(err) { // the collector may already have deleted it
					t.Fatal(err)
				}
			}
			g.check(preview.Status)
		})
	}
}

// randomGraph is a random graph of ConfigMaps in a namespace of its own. Owners are older than
// their dependents, so it has no cycles.
type randomGraph struct {
	t         *testing.T
	client    kubernetes.Interface
	rng       *rand.Rand
	namespace string
	objects   []*corev1.ConfigMap
}

func (g *randomGraph) make(size int) {
	g.t.Helper()
	_, err := g.client.CoreV1().Namespaces().Create(g.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}}, metav1.CreateOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	for i := range size {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%02d", i), OwnerReferences: g.owners()}}
		if object, err = g.client.CoreV1().ConfigMaps(g.namespace).Create(g.t.Context(), object, metav1.CreateOptions{}); err != nil {
			g.t.Fatal(err)
		}
		g.objects = append(g.objects, object)
	}
}

// awaitObserved waits until the collector has observed the graph: a review waits for the object in
// its spec, and the newest object is observed last.
func (g *randomGraph) awaitObserved(config *rest.Config) {
	g.t.Helper()
	last := g.objects[len(g.objects)-1]
	_, err := review(g.t, config, "deletionpreviews", "DeletionPreview", ownership.DeletionPreview{Spec: ownership.DeletionPreviewSpec{
		Target: &ownership.DeletionTarget{APIVersion: "v1", Kind: "ConfigMap", Namespace: g.namespace, Name: last.Name},
	}})
	if err != nil {
		g.t.Fatal(err)
	}
}

// owners returns references to at most two existing objects.
func (g *randomGraph) owners() []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for range g.rng.IntN(3) {
		if len(g.objects) == 0 {
			break
		}
		owner := g.objects[g.rng.IntN(len(g.objects))]
		if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == owner.UID }) {
			continue
		}
		refs = append(refs, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(g.rng.IntN(2) == 0),
		})
	}
	return refs
}

// check waits until all predicted changes have happened, and fails if any other object changes.
func (g *randomGraph) check(preview ownership.DeletionPreviewStatus) {
	g.t.Helper()
	want := map[string][]types.UID{}
	for _, o := range g.objects {
		want[o.Name] = owners(o)
	}
	for _, o := range preview.Objects {
		if o.Outcome == ownership.OutcomeDeleted {
			delete(want, o.Name)
			continue
		}
		want[o.Name] = nil
		for _, owner := range o.KeptBy {
			want[o.Name] = append(want[o.Name], owner.UID)
		}
	}
	eventually(g.t, "the graph is as predicted", func(ctx context.Context) (bool, error) {
		for _, o := range g.objects {
			now, err := g.client.CoreV1().ConfigMaps(g.namespace).Get(ctx, o.Name, metav1.GetOptions{})
			refs, stays := want[o.Name]
			switch {
			case apierrors.IsNotFound(err):
				if stays {
					return false, fmt.Errorf("%s was deleted, want it to stay", o.Name)
				}
			case err != nil:
				return false, err
			case !stays || !slices.Equal(refs, owners(now)):
				return false, nil
			}
		}
		return true, nil
	})
}

func owners(o *corev1.ConfigMap) []types.UID {
	var ids []types.UID
	for _, ref := range o.OwnerReferences {
		ids = append(ids, ref.UID)
	}
	return ids
}

// TestReviewsAreForEveryUser: every user may create reviews; they show only what the user may read.
func TestReviewsAreForEveryUser(t *testing.T) {
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	g := randomGraph{t: t, client: client(t, cluster), rng: rand.New(rand.NewPCG(1, 0)), namespace: "shop"}
	g.make(3)
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	question := ownership.OwnershipTree{Spec: ownership.OwnershipTreeSpec{Object: ownership.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "c-00"}}}
	if _, err := review(t, config, "ownershiptrees", "OwnershipTree", question); !apierrors.IsForbidden(err) {
		t.Errorf("the tree of an object that the caller may not read: %v", err)
	}
	if _, err := review(t, cluster.Config(), "ownershiptrees", "OwnershipTree", question); err != nil {
		t.Errorf("the tree for an administrator: %v", err)
	}
}

// TestReviewsAreAnsweredLikeUpstreams: the generic API server tracks managed fields of all created
// objects, including reviews, so a SubjectAccessReview is returned with managed fields. Kindred's
// reviews have the same metadata.
func TestReviewsAreAnsweredLikeUpstreams(t *testing.T) {
	cluster := startWith(t, kindred.Options{DataDir: t.TempDir(), NoNode: true})
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	answered := func(apiVersion, kind, resource string, spec map[string]any) (fields, managers []string) {
		t.Helper()
		question := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
		gvr := question.GroupVersionKind().GroupVersion().WithResource(resource)
		answer, err := client.Resource(gvr).Create(t.Context(), question, metav1.CreateOptions{FieldManager: "jane"})
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range answer.GetManagedFields() {
			managers = append(managers, field.Manager+" "+string(field.Operation))
		}
		metadata := answer.Object["metadata"].(map[string]any)
		return slices.Sorted(maps.Keys(metadata)), managers
	}
	wantFields, wantManagers := answered("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews",
		map[string]any{"resourceAttributes": map[string]any{"verb": "get", "resource": "pods"}})
	fields, managers := answered("ownership.kindred.dev/v1alpha1", "OwnershipLint", "ownershiplints", map[string]any{"namespace": "default"})
	if !slices.Equal(fields, wantFields) || !slices.Equal(managers, wantManagers) || len(managers) != 1 {
		t.Errorf("ours has %v by %v, upstream's %v by %v", fields, managers, wantFields, wantManagers)
	}
}
