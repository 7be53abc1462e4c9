// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// runtimeHandlers knows the runtime handler of each RuntimeClass, and what the node's handlers support.
type runtimeHandlers struct {
	client kubernetes.Interface
	// node returns the Node object, whose status lists the handlers.
	node func() *v1.Node

	mu      sync.Mutex
	byClass map[string]string // as last read
}

// of returns the handler of a RuntimeClass. It reads the RuntimeClass when needed instead of watching all, because few pods
// have one.
func (h *runtimeHandlers) of(ctx context.Context, class string) (string, error) {
	runtimeClass, err := h.client.NodeV1().RuntimeClasses().Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", class, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byClass == nil {
		h.byClass = map[string]string{}
	}
	h.byClass[class] = runtimeClass.Handler
	return runtimeClass.Handler, nil
}

// ofPod returns the handler of a pod that has a sandbox, as it was read for the sandbox.
func (h *runtimeHandlers) ofPod(ctx context.Context, p *v1.Pod) (string, error) {
	class := p.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", nil
	}
	h.mu.Lock()
	handler, ok := h.byClass[*class]
	h.mu.Unlock()
	if ok {
		return handler, nil
	}
	return h.of(ctx, *class)
}

// supportsUserNamespaces reports whether a handler supports user namespaces (KEP-127).
func (h *runtimeHandlers) supportsUserNamespaces(name string) (bool, error) {
	handlers := h.node().Status.RuntimeHandlers
	for i := range handlers {
		if f := handlers[i].Features; handlers[i].Name == name {
			return f != nil && f.UserNamespaces != nil && *f.UserNamespaces, nil
		}
	}
	if len(handlers) == 0 {
		return false, nil // the runtime is older than the list
	}
	return false, fmt.Errorf("the handler %q is not known", name)
}

// recursiveReadOnly reports whether the handler of a pod can make mounts below a mount read-only as well (KEP-3857).
func (h *runtimeHandlers) recursiveReadOnly(ctx context.Context, p *v1.Pod) bool {
	name, err := h.ofPod(ctx, p)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Recursive read-only mounts count as not supported", "pod", klog.KObj(p))
		return false
	}
	for _, handler := range h.node().Status.RuntimeHandlers {
		if f := handler.Features; handler.Name == name {
			return f != nil && f.RecursiveReadOnlyMounts != nil && *f.RecursiveReadOnlyMounts
		}
	}
	return false
}
