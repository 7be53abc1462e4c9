// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// Lister lists pods. The options are those of controller-runtime's cache.
type Lister interface {
	ListPods(context.Context, ...client.ListOption) ([]*corev1.Pod, error)
}

// List returns the pods that the reader lists. If it is a Lister, they are not copied into a list: for the ReplicaSet of a
// thousand pods that would be most of the work of each change.
func List(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*corev1.Pod, error) {
	if lister, ok := from.(Lister); ok {
		return lister.ListPods(ctx, opts...)
	}
	found := &corev1.PodList{}
	if err := from.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return owned.Pointers(found.Items), nil
}

// Cached lists the pods of a shared cache.
type Cached struct{ Cache cache.Cache }

// ListPods implements Lister. Fields can be selected by one index.
func (c Cached) ListPods(ctx context.Context, opts ...client.ListOption) ([]*corev1.Pod, error) {
	store, err := owned.StoreOf(ctx, c.Cache, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	found, err := lookUp(store, o)
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, item := range found {
		pod := item.(*corev1.Pod)
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if !ptr.Deref(o.UnsafeDisableDeepCopy, false) {
			pod = pod.DeepCopy()
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// lookUp returns the pods in the namespace and with the field of the options.
func lookUp(store toolscache.Indexer, o *client.ListOptions) ([]any, error) {
	switch {
	case o.FieldSelector != nil:
		fields := o.FieldSelector.Requirements()
		if len(fields) != 1 {
			return nil, fmt.Errorf("list pods by %s: not one index", o.FieldSelector)
		}
		return owned.ByField(store, o.Namespace, fields[0].Field, fields[0].Value)
	case o.Namespace != "":
		return store.ByIndex(toolscache.NamespaceIndex, o.Namespace)
	}
	return store.List(), nil
}
