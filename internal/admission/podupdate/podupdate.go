// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podupdate holds the plugins that refuse updates of bound pods which
// their node cannot carry out: NodeDeclaredFeatureValidator and
// PodResizeValidator.
package podupdate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// handler is what the plugins of this package share: it selects the requests that
// they check, and finds the pod's node.
type handler struct {
	*informer.Handler[listers.NodeLister]
	subresources []string
}

// newHandler returns the handler of the plugin of that name. It selects updates
// through the given subresources of pods; "" is the pod itself.
func newHandler(name string, subresources ...string) handler {
	return handler{informer.New(name, func(f informers.SharedInformerFactory) informer.Informer[listers.NodeLister] {
		return f.Core().V1().Nodes()
	}, admission.Update), subresources}
}

// changedPod returns the new and the old pod of a request that changes the spec of
// a bound pod. Both are nil for all other requests.
func (p handler) changedPod(a admission.Attributes) (pod, old *corev1.Pod, err error) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || !slices.Contains(p.subresources, a.GetSubresource()) {
		return nil, nil, nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("expected a pod but got a %T", a.GetObject()))
	}
	if pod.Spec.NodeName == "" {
		return nil, nil, nil
	}
	old, ok = a.GetOldObject().(*corev1.Pod)
	if !ok {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("expected an old pod but got a %T", a.GetOldObject()))
	}
	// Each change of the spec increments the generation.
	if old.Generation == pod.Generation {
		return nil, nil, nil
	}
	if err := p.WaitForSync(a); err != nil {
		return nil, nil, err
	}
	return pod, old, nil
}

// nodeOf returns the pod's node. The request is forbidden if it cannot be read.
func (p handler) nodeOf(a admission.Attributes, pod *corev1.Pod) (*corev1.Node, error) {
	node, err := p.Lister.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	return node, nil
}
