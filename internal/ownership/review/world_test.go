// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"context"
	"strconv"
	"testing"

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
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// world is an API server with permissions, and a collector that observes it.
type world struct {
	t       *testing.T
	graph   *graph.Graph
	objects []runtime.Object
	version int
	// allowed reports whether the caller may use an object.
	allowed func(a authorizer.Attributes) bool
	// gets, if set, is the number of times that an object can be read before it is deleted.
	gets *int
	// unlisted is a resource that cannot be listed.
	unlisted string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, graph: graph.New(), allowed: func(authorizer.Attributes) bool { return true }}
	for _, r := range servedKinds {
		w.graph.Serve(r)
		w.graph.Replace(r.GroupResource(), nil, "1")
	}
	w.version = 1
	return w
}

// add creates an object whose UID is its name.
func (w *world) add(r graph.Resource, namespace, name string, change func(*unstructured.Unstructured)) {
	w.version++
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion(strconv.Itoa(w.version))
	if change != nil {
		change(o)
	}
	w.objects = append(w.objects, o)
	w.graph.Observe(r.GroupResource(), o)
}

// ownedBy adds owners of a kind, with blockOwnerDeletion. The first is the controller.
func ownedBy(r graph.Resource, names ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		var refs []metav1.OwnerReference
		for i, name := range names {
			refs = append(refs, metav1.OwnerReference{
				APIVersion: r.GroupVersion().String(), Kind: r.Kind, Name: name, UID: types.UID(name),
				Controller: new(i == 0), BlockOwnerDeletion: new(true),
			})
		}
		o.SetOwnerReferences(refs)
	}
}

func held(change func(*unstructured.Unstructured), finalizer string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		if change != nil {
			change(o)
		}
		o.SetFinalizers([]string{finalizer})
	}
}

func (w *world) View(f func(*graph.Graph)) { f(w.graph) }

func (w *world) Lookup(context.Context, graph.Action) graph.Outcome {
	return graph.Outcome{Result: graph.Absent}
}

func (w *world) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if w.allowed(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (w *world) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(w.Authorize(ctx, a))
}

func (w *world) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// reviews returns Reviews for the world.
func (w *world) reviews() *Reviews {
	var partial []runtime.Object
	for _, o := range w.objects {
		u := o.(*unstructured.Unstructured)
		partial = append(partial, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Labels: u.GetLabels(),
				Annotations: u.GetAnnotations(), DeletionTimestamp: u.GetDeletionTimestamp(),
			},
		})
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	lists := map[schema.GroupVersionResource]string{}
	for _, r := range servedKinds {
		lists[r.GroupVersionResource] = r.Kind + "List"
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, partial...)
	client.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if w.gets == nil {
			return false, nil, nil
		}
		*w.gets--
		return *w.gets < 0, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), a.(clienttesting.GetAction).GetName())
	})
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		refused := a.GetResource().Resource == w.unlisted
		return refused, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	r := &Reviews{}
	r.Connect(Sources{
		History:   &memory{},
		Collector: w, Clock: clock.RealClock{}, Discovery: discovered(), Metadata: client,
		Objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, w.objects...),
	})
	return r
}

// create creates a review as the API server does.
func (w *world) create(endpoint rest.Storage, review runtime.Object) error {
	w.t.Helper()
	ctx := request.WithUser(w.t.Context(), &user.DefaultInfo{Name: "jane"})
	_, err := endpoint.(rest.Creater).Create(ctx, review, nil, &metav1.CreateOptions{})
	return err
}

func (w *world) policy() Policy {
	return Policy{Authorizer: w, Orphans: func(r schema.GroupVersionResource) bool { return r.GroupResource() == jobs.GroupResource() }}
}
