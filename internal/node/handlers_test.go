// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func handlersOf(names ...v1.NodeRuntimeHandler) *runtimeHandlers {
	return &runtimeHandlers{
		client: fake.NewClientset(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "good"}),
		node:   func() *v1.Node { return &v1.Node{Status: v1.NodeStatus{RuntimeHandlers: names}} },
	}
}

func TestHandlersSupport(t *testing.T) {
	h := handlersOf(v1.NodeRuntimeHandler{Name: ""}, v1.NodeRuntimeHandler{Name: "good", Features: &v1.NodeRuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: new(true), UserNamespaces: new(true),
	}})
	for name, want := range map[string]bool{"": false, "good": true} {
		if got, err := h.supportsUserNamespaces(name); got != want || err != nil {
			t.Errorf("handler %q: %t, %v", name, got, err)
		}
	}
	if _, err := h.supportsUserNamespaces("other"); err == nil || err.Error() != `the handler "other" is not known` {
		t.Errorf("an unknown handler: %v", err)
	}
	if got, err := handlersOf().supportsUserNamespaces("other"); got || err != nil {
		t.Errorf("a runtime without the list: %t, %v", got, err)
	}
	for class, want := range map[string]bool{"": false, "class": true, "missing": false} {
		p := &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &class}}
		if got := h.recursiveReadOnly(t.Context(), p); got != want {
			t.Errorf("class %q: %t", class, got)
		}
	}
}
