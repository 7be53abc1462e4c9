// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// evictions is a namespace with pods and disruption budgets.
type evictions struct {
	*testing.T
	namespace string
	client    kubernetes.Interface
}

// pod creates a pod with a finalizer; its status says that it is running.
func (e evictions) pod(name, app string, ready bool, phase corev1.PodPhase) *corev1.Pod {
	e.Helper()
	pods := e.client.CoreV1().Pods(e.namespace)
	p, err := pods.Create(e.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}, Finalizers: []string{"example.com/stay"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	p.Status.Phase = phase
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if p, err = pods.UpdateStatus(e.Context(), p, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
	return p
}

func (e evictions) budget(name, app string, status policyv1.PodDisruptionBudgetStatus) {
	e.Helper()
	budgets := e.client.PolicyV1().PodDisruptionBudgets(e.namespace)
	b, err := budgets.Create(e.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	b.Status = status
	b.Status.ObservedGeneration = b.Generation
	if _, err := budgets.UpdateStatus(e.Context(), b, metav1.UpdateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e evictions) evict(name string, options *metav1.DeleteOptions) error {
	return e.client.PolicyV1().Evictions(e.namespace).Evict(e.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.namespace}, DeleteOptions: options})
}

// wantEvicted checks whether the pod is being deleted, and its DisruptionTarget condition.
func (e evictions) wantEvicted(name string, want bool) {
	e.Helper()
	p, err := e.client.CoreV1().Pods(e.namespace).Get(e.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	var reason string
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			reason = c.Reason
		}
	}
	if evicted := p.DeletionTimestamp != nil; evicted != want || (reason == "EvictionByEvictionAPI") != want {
		e.Errorf("%s: being deleted: %v, because %q", name, evicted, reason)
	}
}

func TestEvictions(t *testing.T) {
	e := evictions{t, server.namespace(t), server.client(t)}
	one := policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3}
	e.budget("one", "web", one)
	for i := range 3 {
		e.pod(fmt.Sprint("web-", i), "web", true, corev1.PodRunning)
	}
	if err := e.evict("web-0", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	e.wantEvicted("web-0", false)
	if err := e.evict("web-0", nil); err != nil {
		t.Fatal(err)
	}
	e.wantEvicted("web-0", true)
	b, err := e.client.PolicyV1().PodDisruptionBudgets(e.namespace).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || b.Status.DisruptionsAllowed != 0 || len(b.Status.DisruptedPods) != 1 {
		t.Errorf("the budget after it: %+v, %v", b.Status, err)
	}
	err = e.evict("web-1", nil)
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("eviction of the second pod: %v", err)
	}
	e.wantEvicted("web-1", false)

	for name, phase := range map[string]corev1.PodPhase{"pending": corev1.PodPending, "done": corev1.PodSucceeded, "broken": corev1.PodFailed} {
		e.pod(name, "web", false, phase)
		if err := e.evict(name, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		e.wantEvicted(name, true)
	}
	e.pod("web-3", "web", false, corev1.PodRunning) // as many are healthy as the budget requires
	if err := e.evict("web-3", nil); err != nil {
		t.Errorf("not ready: %v", err)
	}
	e.wantEvicted("web-3", true)

	free := e.pod("free", "none", true, corev1.PodRunning)
	for what, p := range map[string]*metav1.Preconditions{"UID": {UID: new(types.UID("x"))}, "version": {ResourceVersion: new("1")}} {
		if err := e.evict("free", &metav1.DeleteOptions{Preconditions: p}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "in the precondition") {
			t.Errorf("another %s: %v", what, err)
		}
	}
	e.wantEvicted("free", false)
	err = e.client.PolicyV1beta1().Evictions(e.namespace).Evict(t.Context(), &policyv1beta1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "free", Namespace: e.namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &free.UID, ResourceVersion: &free.ResourceVersion}}})
	if err != nil {
		t.Errorf("an eviction in policy/v1beta1: %v", err)
	}
	e.wantEvicted("free", true)

}

func TestEvictionsThatAreRefused(t *testing.T) {
	e := evictions{t, server.namespace(t), server.client(t)}
	e.pod("db", "db", true, corev1.PodRunning)
	e.budget("a", "db", policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1})
	e.budget("b", "db", policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1})
	if err := e.evict("none", nil); !apierrors.IsNotFound(err) {
		t.Errorf("no such pod: %v", err)
	}
	for body, want := range map[string]string{
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db"}}`:                                                                           "This pod has more than one PodDisruptionBudget",
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}`:                                                                        "name in URL does not match name in Eviction object",
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db"},"deleteOptions":{"ignoreStoreReadErrorWithClusterBreakingPotential":true}}`: "can not be set for pod eviction",
	} {
		got := server.do(t, server.admin, http.MethodPost, "/api/v1/namespaces/"+e.namespace+"/pods/db/eviction", body)
		if !strings.Contains(got.body, want) || !strings.Contains(got.body, `"status":"Failure"`) {
			t.Errorf("%s: %d %s", body, got.code, got.body)
		}
	}
	e.wantEvicted("db", false)
}
