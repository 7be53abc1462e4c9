// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointslice

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The reconciler of k8s.io/endpointslice takes a clientset and a lister. The types below
// implement the methods that it calls; the embedded interfaces are nil, since it calls no
// others.

// clientset writes EndpointSlices with the controller's client, and records them in its ledger.
type clientset struct {
	kubernetes.Interface
	r *reconciler
}

func (c clientset) DiscoveryV1() discoveryclient.DiscoveryV1Interface {
	return discoveryGroup{r: c.r}
}

type discoveryGroup struct {
	discoveryclient.DiscoveryV1Interface
	r *reconciler
}

func (g discoveryGroup) EndpointSlices(namespace string) discoveryclient.EndpointSliceInterface {
	return sliceWriter{r: g.r, namespace: namespace}
}

type sliceWriter struct {
	discoveryclient.EndpointSliceInterface
	r         *reconciler
	namespace string
}

func (s sliceWriter) Create(ctx context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	slice.Namespace = s.namespace
	if err := s.r.client.Create(ctx, slice); err != nil {
		return nil, err
	}
	s.r.ledger.Wrote(ownerOf(slice), slice)
	return slice, nil
}

func (s sliceWriter) Update(ctx context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	if err := s.r.client.Update(ctx, slice); err != nil {
		return nil, err
	}
	s.r.ledger.Wrote(ownerOf(slice), slice)
	return slice, nil
}

func (s sliceWriter) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	// The cache may lack a slice that was just created.
	slice := &discoveryv1.EndpointSlice{}
	if err := s.r.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, slice); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := s.r.client.Delete(ctx, slice.DeepCopy(), client.Preconditions{UID: &slice.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	s.r.ledger.Deleted(ownerOf(slice), slice)
	return nil
}

// ownerOf returns the Service of a slice with the fields that the ledger needs.
func ownerOf(slice *discoveryv1.EndpointSlice) client.Object {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}}
}

// nodeLister reads nodes from the shared cache.
type nodeLister struct{ reader client.Reader }

var _ corelisters.NodeLister = nodeLister{}

func (l nodeLister) Get(name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, l.reader.Get(context.Background(), client.ObjectKey{Name: name}, node)
}

func (l nodeLister) List(selector labels.Selector) ([]*corev1.Node, error) {
	return l.all(context.Background(), client.MatchingLabelsSelector{Selector: selector})
}

func (l nodeLister) all(ctx context.Context, opts ...client.ListOption) ([]*corev1.Node, error) {
	found := &corev1.NodeList{}
	err := l.reader.List(ctx, found, append(opts, client.UnsafeDisableDeepCopy)...) // topologies only read them
	out := make([]*corev1.Node, len(found.Items))
	for i := range found.Items {
		out[i] = &found.Items[i]
	}
	return out, err
}

// parseKey parses "namespace/name".
func parseKey(key string) (types.NamespacedName, bool) {
	namespace, name, found := strings.Cut(key, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, found
}
