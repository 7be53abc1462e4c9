// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestNamespaceDeletion: DELETE sets the deletion timestamp, the controller empties and finalizes
// the namespace, and the removal of the last finalizer removes it.
func TestNamespaceDeletion(t *testing.T) {
	name, client := server.namespace(t), server.client(t)
	namespaces := client.CoreV1().Namespaces()
	maps := client.CoreV1().ConfigMaps(name)
	if _, err := maps.Create(t.Context(), configMap("before", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wrong := types.UID("wrong")
	err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	if !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || got.Status.Phase != corev1.NamespaceTerminating || got.DeletionTimestamp == nil || !slices.Equal(got.Spec.Finalizers, []corev1.FinalizerName{corev1.FinalizerKubernetes}) {
		t.Fatalf("%+v, %v", got, err)
	}
	// The admission plugin that refuses creation may see the termination a little later.
	err = within(5*time.Second, func() error {
		_, err := maps.Create(t.Context(), configMap("after", nil), metav1.CreateOptions{})
		if err == nil {
			_ = maps.Delete(t.Context(), "after", metav1.DeleteOptions{})
			return apierrors.NewTimeoutError("created in a terminating namespace", 0)
		}
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || !strings.Contains(err.Error(), "because it is being terminated") {
			t.Errorf("creation: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := maps.Patch(t.Context(), "before", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a change in a terminating namespace: %v", err)
	}
	got.Spec.Finalizers = append(got.Spec.Finalizers, "bogus")
	if _, err := namespaces.Finalize(t.Context(), got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an invalid finalizer: %v", err)
	}
	got.Spec.Finalizers = nil
	if _, err := namespaces.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if still, err := namespaces.Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(still.Spec.Finalizers) != 1 {
		t.Fatalf("an ordinary update removed the finalizer: %+v, %v", still, err)
	}
	got.ResourceVersion = ""
	if _, err := namespaces.Finalize(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := namespaces.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer: %v", err)
	}
}

func TestPreconditionsOfDelete(t *testing.T) {
	namespace := server.namespace(t)
	maps := server.client(t).CoreV1().ConfigMaps(namespace)
	made, err := maps.Create(t.Context(), configMap("a", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrongUID, wrongVersion := types.UID("wrong"), "1"
	for name, p := range map[string]metav1.Preconditions{"UID": {UID: &wrongUID}, "resourceVersion": {ResourceVersion: &wrongVersion}} {
		if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &p}); !apierrors.IsConflict(err) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	right := metav1.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion}
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &right}); err != nil {
		t.Error(err)
	}
	stale := made.DeepCopy()
	if _, err := maps.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an update of a deleted object: %v", err)
	}
}

// TestDeletionPolicies: the propagation policy of a deletion is stored as a finalizer for the
// garbage collector.
func TestDeletionPolicies(t *testing.T) {
	namespace := server.namespace(t)
	maps := server.client(t).CoreV1().ConfigMaps(namespace)
	for policy, finalizer := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
		metav1.DeletePropagationBackground: "",
	} {
		if _, err := maps.Create(t.Context(), configMap("a", nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		got, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if finalizer == "" {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", policy, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Finalizers, []string{finalizer}) || got.DeletionTimestamp == nil {
			t.Errorf("%s: %+v, %v", policy, got, err)
		}
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: still exists without finalizers: %v", policy, err)
		}
	}
}

func TestBinding(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	pods := client.CoreV1().Pods(namespace)
	create := func(name string, gates ...corev1.PodSchedulingGate) *corev1.Pod {
		t.Helper()
		p, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{SchedulingGates: gates, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	bind := func(p *corev1.Pod, uid types.UID) error {
		return pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: uid, Labels: map[string]string{"zone": "a"}},
			Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{})
	}
	one := create("one")
	if err := bind(one, "another"); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := bind(one, one.UID); err != nil {
		t.Fatal(err)
	}
	got, err := pods.Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || got.Spec.NodeName != "n1" || got.Labels["zone"] != "a" || got.Status.Conditions[0].Type != corev1.PodScheduled || got.Status.Conditions[0].LastTransitionTime.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if err := bind(one, ""); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `pod one is already assigned to node "n1"`) {
		t.Errorf("bound twice: %v", err)
	}
	if err := bind(create("gated", corev1.PodSchedulingGate{Name: "a.b/c"}), ""); !apierrors.IsConflict(err) {
		t.Errorf("a gated pod was bound: %v", err)
	}
	if err := bind(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, ""); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that does not exist was bound: %v", err)
	}
	create("two")
	legacy := server.do(t, server.admin, http.MethodPost, "/api/v1/namespaces/"+namespace+"/bindings",
		`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"two"},"target":{"kind":"Node","name":"n2"}}`)
	if legacy.code != http.StatusCreated {
		t.Errorf("the legacy bindings resource: %d %s", legacy.code, legacy.body)
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n2"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "two" {
		t.Errorf("pods of n2: %v, %v", list, err)
	}
	list, err = pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.host!=n2,status.phase=Pending"})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("pods of other nodes: %d, %v", len(list.Items), err)
	}
}

// TestPodDeletion: a pod without a node is removed at once; a pod on a node gets its grace period.
func TestPodDeletion(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	pods := client.CoreV1().Pods(namespace)
	for name, node := range map[string]string{"nowhere": "", "somewhere": "n1"} {
		if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.Get(t.Context(), "nowhere", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a node: %v", err)
	}
	got, err := pods.Get(t.Context(), "somewhere", metav1.GetOptions{})
	if err != nil || got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("on a node: %+v, %v", got, err)
	}
	none := int64(0)
	if err := pods.Delete(t.Context(), "somewhere", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "somewhere", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("forced: %v", err)
	}
}

// TestEventsOfBothGroups: an Event is one object in both API groups, each with its own validation.
func TestEventsOfBothGroups(t *testing.T) {
	namespace, client := server.namespace(t), server.client(t)
	about := corev1.ObjectReference{Kind: "ClusterRole", Name: "system:some:role", Namespace: namespace}
	older := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "system:some:role.17a"}, InvolvedObject: about, Reason: "R", Message: "m", Type: "Normal", Count: 3}
	if _, err := client.CoreV1().Events(namespace).Create(t.Context(), older, metav1.CreateOptions{}); err != nil {
		t.Fatalf("an event named after a role: %v", err)
	}
	newer := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "newer"}, Regarding: about, Reason: "N", Action: "A", Note: "note", Type: "Warning",
		ReportingController: "example.com/c", ReportingInstance: "c-1", EventTime: metav1.NowMicro()}
	if _, err := client.EventsV1().Events(namespace).Create(t.Context(), newer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	strict := newer.DeepCopy()
	strict.Name, strict.DeprecatedCount, strict.Action = "strict", 1, ""
	if _, err := client.EventsV1().Events(namespace).Create(t.Context(), strict, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("events.k8s.io validates strictly: %v", err)
	}
	asCore, err := client.CoreV1().Events(namespace).Get(t.Context(), "newer", metav1.GetOptions{})
	if err != nil || asCore.Message != "note" || asCore.InvolvedObject.Name != about.Name {
		t.Errorf("%+v, %v", asCore, err)
	}
	asNew, err := client.EventsV1().Events(namespace).Get(t.Context(), older.Name, metav1.GetOptions{})
	if err != nil || asNew.Note != "m" || asNew.DeprecatedCount != 3 {
		t.Errorf("%+v, %v", asNew, err)
	}
	list, err := client.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=system:some:role,reason=N"})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	coreList, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ClusterRole,source="})
	if err != nil || len(coreList.Items) != 1 || coreList.Items[0].Reason != "R" {
		t.Errorf("%v, %v", coreList, err)
	}
}

func TestCreateOnUpdate(t *testing.T) {
	namespace := server.namespace(t)
	for path, want := range map[string]int{
		"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/l":             http.StatusCreated,
		"/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles/r":        http.StatusCreated,
		"/api/v1/namespaces/" + namespace + "/configmaps/c":                              http.StatusNotFound,
		"/apis/apps/v1/namespaces/" + namespace + "/controllerrevisions/c":               http.StatusNotFound,
		"/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles/mismatch": http.StatusBadRequest,
	} {
		name := path[strings.LastIndex(path, "/")+1:]
		if name == "mismatch" {
			name = "other"
		}
		body := `{"metadata":{"name":"` + name + `"}}`
		if strings.Contains(path, "controllerrevisions") {
			body = `{"metadata":{"name":"c"},"data":{},"revision":1}`
		}
		if got := server.do(t, server.admin, http.MethodPut, path, body); got.code != want {
			t.Errorf("PUT %s: %d %.200q, want %d", path, got.code, got.body, want)
		}
	}
	lease := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/l"
	if got := server.do(t, server.admin, http.MethodPut, lease, `{"metadata":{"name":"l"}}`); got.code != http.StatusUnprocessableEntity {
		t.Errorf("an unconditional update of a lease: %d %.200q", got.code, got.body)
	}
}

// TestCustomResources: custom resources are served like built-in kinds, and refused like them while
// the disk is full.
func TestCustomResources(t *testing.T) {
	namespace := server.namespace(t)
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if got := server.do(t, server.admin, http.MethodPost, crds, widgets); got.code != http.StatusCreated {
		t.Fatalf("%d %s", got.code, got.body)
	}
	defer server.do(t, server.admin, http.MethodDelete, crds+"/widgets.example.com", "")
	path := "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]},"size":1}`
	err := within(10*time.Second, func() error {
		if got := server.do(t, server.admin, http.MethodPost, path, body); got.code != http.StatusCreated {
			return errors.New(got.body)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	patch := server.do(t, server.admin, http.MethodPatch, path+"/w", `[{"op":"remove","path":"/metadata/ownerReferences/0"},{"op":"replace","path":"/size","value":2}]`,
		"Content-Type", "application/json-patch+json")
	if patch.code != http.StatusOK || !strings.Contains(patch.body, `"size":2`) || strings.Contains(patch.body, `"kind":"Node"`) {
		t.Errorf("patch: %d %s", patch.code, patch.body)
	}
	err = within(10*time.Second, func() error {
		got := server.do(t, server.admin, http.MethodGet, "/apis/example.com/v1", "")
		if got.code != http.StatusOK || !strings.Contains(got.body, `"shortNames":["wd"]`) {
			return fmt.Errorf("discovery: %d %s", got.code, got.body)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	fill(t)
	if got := server.do(t, server.admin, http.MethodPut, path+"/w", strings.Replace(patch.body, `"size":2`, `"size":3`, 1)); got.code != http.StatusInsufficientStorage {
		t.Errorf("update on a full disk: %d %s", got.code, got.body)
	}
	if got := server.do(t, server.admin, http.MethodDelete, path+"/w", ""); got.code != http.StatusOK {
		t.Errorf("delete on a full disk: %d %s", got.code, got.body)
	}
}
