// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// slow answers each GET after a delay, unless the context ends first.
type slow struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	takes time.Duration
	fails error
}

func (s slow) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	s.NamespaceableResourceInterface = s.Interface.Resource(r)
	return s
}

func (s slow) Namespace(namespace string) dynamic.ResourceInterface {
	return slowIn{s.NamespaceableResourceInterface.Namespace(namespace), s}
}

type slowIn struct {
	dynamic.ResourceInterface
	slow
}

func (s slowIn) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.takes):
	}
	if s.fails != nil {
		return nil, s.fails
	}
	return s.ResourceInterface.Get(ctx, name, options, subresources...)
}

// leaving returns an object of the source that is being deleted.
func leaving(name string, finalizers ...string) *unstructured.Unstructured {
	o := object("v1", "ConfigMap", name)
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	o.SetFinalizers(finalizers)
	return o
}

// awaiting returns a removal that has deleted the objects in gone; the source still has the objects
// in there.
func awaiting(source slow, gone []*unstructured.Unstructured, there ...runtime.Object) *removal {
	source.Interface = dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), there...)
	served := map[schema.GroupVersionKind]kind{}
	for _, k := range []kind{
		{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, true, false, nil},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, true, true, nil},
	} {
		served[k.GroupVersionKind] = k
	}
	m := &Mover{Options: Options{Source: &Cluster{Name: "the source", dynamic: source, kinds: &kinds{served: served}}, Progress: func(string) {}}}
	return &removal{Mover: m, gone: gone}
}

// TestAwaitGone: objects that are not deleted in time are reported with what they wait for, whether
// the limit is reached between two requests or during one.
func TestAwaitGone(t *testing.T) {
	mine := leaving("mine", "mine.example.com", "kubernetes.io/pvc-protection")
	mine.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "operator", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:finalizers":{"v:\"mine.example.com\"":{}}}}`)}}})
	pod := object("v1", "Pod", "pod")
	pod.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	_ = unstructured.SetNestedField(pod.Object, "node-1", "spec", "nodeName")
	another := object("v1", "ConfigMap", "replaced")
	another.SetUID("another")
	deleted := []*unstructured.Unstructured{mine, leaving("unknown"), leaving("gone"), pod, leaving("replaced"), leaving("stays")}
	const begins = "it is being deleted, but still exists after 2m0s: "
	want := []Kept{
		{"configmap/mine in namespace ns", begins + "it waits for finalizer mine.example.com, which operator set: the controller that must remove it does not, or does not run; and for finalizer kubernetes.io/pvc-protection: the claim protection controller removes it when no pod uses the claim"},
		{"configmap/unknown in namespace ns", begins + "it waits for finalizer example.com/f, which its controller must remove"},
		{"pod/pod in namespace ns", begins + "node node-1 must stop its containers"},
		{"configmap/stays in namespace ns", begins + "it has no finalizer, so the source's API server must remove it"},
	}
	for _, takes := range []time.Duration{0, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := awaiting(slow{takes: takes}, deleted, mine, leaving("unknown", "example.com/f"), pod, another, leaving("stays"))
			left, err := r.awaitGone(t.Context())
			if err != nil || left != len(want) {
				t.Errorf("requests that take %s: %d stay, %v", takes, left, err)
			}
			if diff := cmp.Diff(want, r.report.Kept); diff != "" {
				t.Errorf("requests that take %s:\n%s", takes, diff)
			}
		})
	}
}

// TestAwaitGoneFails: errors of the source and an interruption are not mistaken for the limit.
func TestAwaitGoneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		r := awaiting(slow{fails: broken}, []*unstructured.Unstructured{leaving("a")})
		if _, err := r.awaitGone(t.Context()); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "the source: ") {
			t.Errorf("an error of the source: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r = awaiting(slow{}, []*unstructured.Unstructured{leaving("a")}, leaving("a"))
		if _, err := r.awaitGone(ctx); !errors.Is(err, context.DeadlineExceeded) || len(r.report.Kept) > 0 {
			t.Errorf("the caller's deadline: %v, kept %v", err, r.report.Kept)
		}
	})
}
