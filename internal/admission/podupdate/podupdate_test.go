// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/kindred-project/kindred/internal/admission/admissiontest"
	"github.com/kindred-project/kindred/internal/admission/informer"
)

func pod(node string, generation int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "p", Generation: generation}, Spec: corev1.PodSpec{NodeName: node}}
}

func update(resource string, now, old runtime.Object) admission.Attributes {
	return admissiontest.Request{Operation: admission.Update, Resource: resource, Object: now, Old: old}.Attributes()
}

// TestChangedPod covers the requests that are checked, those that are not, and
// those whose objects are of the wrong kind.
func TestChangedPod(t *testing.T) {
	both, resize := []string{"", "resize"}, []string{"resize"}
	for name, test := range map[string]struct {
		subresources []string
		resource     string
		now, old     runtime.Object
		changed      bool
		refusal      string
	}{
		"a pod":                                 {both, "pods", pod("n", 2), pod("n", 1), true, ""},
		"a pod through a subresource":           {both, "pods/resize", pod("n", 2), pod("n", 1), true, ""},
		"a pod that is being bound":             {both, "pods", pod("n", 2), pod("", 1), true, ""},
		"a pod, where only resizes are checked": {resize, "pods", pod("n", 2), pod("n", 1), false, ""},
		"another subresource":                   {both, "pods/status", pod("n", 2), pod("n", 1), false, ""},
		"the spec is unchanged":                 {both, "pods", pod("n", 1), pod("n", 1), false, ""},
		"no node yet":                           {both, "pods", pod("", 2), pod("", 1), false, ""},
		"another kind":                          {both, "configmaps", &corev1.ConfigMap{}, &corev1.ConfigMap{}, false, ""},
		"pods of another group":                 {both, "pods.metrics.k8s.io", &corev1.ConfigMap{}, &corev1.ConfigMap{}, false, ""},
		"object of another kind":                {both, "pods", &corev1.ConfigMap{}, pod("n", 1), false, "expected a pod but got a *v1.ConfigMap"},
		"old object of another kind":            {resize, "pods/resize", pod("n", 2), &corev1.ConfigMap{}, false, "expected an old pod but got a *v1.ConfigMap"},
		"no old object":                         {resize, "pods/resize", pod("n", 2), nil, false, "expected an old pod but got a <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			now, old, err := newHandler("Validator", test.subresources...).changedPod(update(test.resource, test.now, test.old))
			if test.refusal != "" && (!apierrors.IsBadRequest(err) || err.Error() != test.refusal) || test.refusal == "" && err != nil {
				t.Fatalf("%v, want %q", err, test.refusal)
			}
			if !test.changed {
				if now != nil || old != nil {
					t.Errorf("%v, %v, want nil", now, old)
				}
				return
			}
			if now != test.now || old != test.old {
				t.Errorf("%v, %v, want the new and the old pod", now, old)
			}
		})
	}
}

type unreadable struct{ listers.NodeLister }

func (unreadable) Get(string) (*corev1.Node, error) { return nil, errors.New("no cache") }

func TestNodeOf(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	if err := factory.Core().V1().Nodes().Informer().GetIndexer().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	listed := newHandler("Validator")
	listed.SetExternalKubeInformerFactory(factory)
	for name, test := range map[string]struct {
		plugin  handler
		node    string
		refusal string
	}{
		"exists":           {listed, "n", ""},
		"missing":          {listed, "gone", `pods "p" is forbidden: node "gone" not found`},
		"the lister fails": {handler{Handler: &informer.Handler[listers.NodeLister]{Lister: unreadable{}}}, "n", `pods "p" is forbidden: failed to get node "n": no cache`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := pod(test.node, 2)
			node, err := test.plugin.nodeOf(update("pods", changed, pod(test.node, 1)), changed)
			if test.refusal == "" && (err != nil || node.Name != test.node) {
				t.Errorf("%v, %v", node, err)
			}
			if test.refusal != "" && (!apierrors.IsForbidden(err) || err.Error() != test.refusal) {
				t.Errorf("%v, want %q", err, test.refusal)
			}
		})
	}
}

// A request waits a limited time for the informer of nodes to sync.
func TestWaitsForNodes(t *testing.T) {
	for name, test := range map[string]struct {
		synced time.Duration // 0: never
		passes bool
	}{
		"the informer syncs in time": {3 * time.Second, true},
		"the informer does not sync": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plugin := newHandler("Validator", "")
				plugin.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(nil, 0))
				if start := time.Now(); test.synced > 0 {
					plugin.SetReadyFunc(func() bool { return time.Since(start) >= test.synced })
				}
				now, _, err := plugin.changedPod(update("pods", pod("n", 2), pod("n", 1)))
				if test.passes && (err != nil || now == nil) {
					t.Errorf("%v, %v", now, err)
				}
				if !test.passes && (!apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), "not yet ready to handle request")) {
					t.Errorf("%v", err)
				}
				if now, _, err := plugin.changedPod(update("pods", pod("n", 1), pod("n", 1))); now != nil || err != nil {
					t.Errorf("a request that is not checked: %v, %v", now, err)
				}
			})
		})
	}
}

func TestInitialization(t *testing.T) {
	plugin := newHandler("Validator", "")
	if err := plugin.ValidateInitialization(); err == nil || err.Error() != "Validator needs informers" {
		t.Errorf("without informers: %v", err)
	}
	plugin.SetExternalKubeInformerFactory(informers.NewSharedInformerFactory(nil, 0))
	if err := plugin.ValidateInitialization(); err != nil {
		t.Errorf("with informers: %v", err)
	}
	for operation, handled := range map[admission.Operation]bool{admission.Update: true, admission.Create: false, admission.Delete: false, admission.Connect: false} {
		if plugin.Handles(operation) != handled {
			t.Errorf("%s: handled %v", operation, !handled)
		}
	}
}
