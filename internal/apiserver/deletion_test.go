// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// TestDefaultPolicies deletes an object of each kind that has dependents, with and without a
// propagation policy. Without one, only ReplicationControllers (v1) and Jobs (batch/v1) orphan
// their dependents, as they did before there were policies. Finalizers of the object override the
// default, and a policy in the request overrides both.
func TestDefaultPolicies(t *testing.T) {
	namespace := server.namespace(t)
	const template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const selected = `{"selector":{"matchLabels":{"a":"b"}},` + template + `}`
	const job = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
	for _, test := range []struct {
		path, spec string
		finalizer  string // the finalizer after a deletion without options; empty if the object is removed
	}{
		{"/api/v1/%s/replicationcontrollers", `{"selector":{"a":"b"},` + template + `}`, "orphan"},
		{"/apis/batch/v1/%s/jobs", `{` + job + `}`, "orphan"},
		{"/apis/batch/v1/%s/cronjobs", `{"schedule":"@daily","jobTemplate":{"spec":{` + job + `}}}`, ""},
		{"/apis/apps/v1/%s/replicasets", selected, ""},
		{"/apis/apps/v1/%s/deployments", selected, ""},
		{"/apis/apps/v1/%s/statefulsets", `{"serviceName":"s",` + selected[1:], ""},
		{"/apis/apps/v1/%s/daemonsets", selected, ""},
		{"/api/v1/%s/configmaps", "", ""},
		{"/api/v1/%s/services", `{"ports":[{"port":1}]}`, ""},
	} {
		path := fmt.Sprintf(test.path, "namespaces/"+namespace)
		for _, already := range []string{"", "orphan", "foregroundDeletion"} {
			unnamed := already
			if already == "" {
				unnamed = test.finalizer
			}
			for options, want := range map[string]string{
				"":                                    unnamed,
				`{"gracePeriodSeconds":0}`:            unnamed,
				`{"propagationPolicy":"Background"}`:  "",
				`{"propagationPolicy":"Foreground"}`:  "foregroundDeletion",
				`{"propagationPolicy":"Orphan"}`:      "orphan",
				`{"orphanDependents":false}`:          "",
				`{"orphanDependents":true}`:           "orphan",
				`{"propagationPolicy":"Thoroughly"}`:  "refused",
				`{"preconditions":{"uid":"another"}}`: "refused",
			} {
				if got := deleted(t, path, test.spec, already, options); got != want {
					t.Errorf("DELETE %s %s, with finalizer %q before: %q, want %q", path, options, already, got, want)
				}
			}
		}
	}
}

// deleted creates and deletes an object, and returns the finalizer that it has afterwards.
func deleted(t *testing.T, path, spec, finalizer, options string) string {
	t.Helper()
	metadata := `"metadata":{"name":"o"}`
	if finalizer != "" {
		metadata = `"metadata":{"name":"o","finalizers":["` + finalizer + `"]}`
	}
	body := `{` + metadata + `}`
	if spec != "" {
		body = `{` + metadata + `,"spec":` + spec + `}`
	}
	if got := server.do(t, server.admin, http.MethodPost, path, body); got.code != http.StatusCreated {
		t.Fatalf("create %s: %d %s", path, got.code, got.body)
	}
	code := server.do(t, server.admin, http.MethodDelete, path+"/o", options).code
	left := server.do(t, server.admin, http.MethodGet, path+"/o", "")
	if left.code == http.StatusOK {
		server.do(t, server.admin, http.MethodPatch, path+"/o", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
		server.do(t, server.admin, http.MethodDelete, path+"/o", `{"propagationPolicy":"Background"}`)
	}
	switch {
	case code >= http.StatusBadRequest:
		return "refused"
	case left.code == http.StatusNotFound:
		return ""
	case strings.Contains(left.body, `"finalizers":["orphan"]`):
		return "orphan"
	case strings.Contains(left.body, `"finalizers":["foregroundDeletion"]`):
		return "foregroundDeletion"
	}
	return left.body
}

// TestAStaleVersionIsNotDeleted updates an object and at once deletes its former version: the watch
// cache may not have the update yet.
func TestAStaleVersionIsNotDeleted(t *testing.T) {
	maps := server.client(t).CoreV1().ConfigMaps(server.namespace(t))
	made, err := maps.Create(t.Context(), configMap("a", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		stale := made.ResourceVersion
		made.Finalizers = [][]string{{"example.com/held"}, nil}[i%2]
		if made, err = maps.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID, ResourceVersion: &stale}})
		if !apierrors.IsConflict(err) {
			t.Fatalf("round %d: deleting version %s after it became %s: %v, want a conflict", i, stale, made.ResourceVersion, err)
		}
	}
	right := metav1.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion}
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &right}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &right}); !apierrors.IsNotFound(err) {
		t.Errorf("deleting it again: %v, want NotFound", err)
	}
}

// TestTerminatingPods ends the grace period of terminating pods. It takes one write, which watches see as
// the deletion, unless a finalizer or a precondition prevents it.
func TestTerminatingPods(t *testing.T) {
	pods := server.client(t).CoreV1().Pods(server.namespace(t))
	atOnce := func(p *metav1.Preconditions) metav1.DeleteOptions {
		return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: p}
	}
	for name, test := range map[string]struct {
		finalizers []string
		options    func(*corev1.Pod) metav1.DeleteOptions
		refused    func(error) bool
		events     []watch.EventType
	}{
		"nothing named": {options: func(*corev1.Pod) metav1.DeleteOptions { return atOnce(nil) }, events: []watch.EventType{watch.Deleted}},
		"its UID":       {options: func(p *corev1.Pod) metav1.DeleteOptions { return atOnce(&metav1.Preconditions{UID: &p.UID}) }, events: []watch.EventType{watch.Deleted}},
		"another UID":   {options: func(*corev1.Pod) metav1.DeleteOptions { return atOnce(metav1.NewUIDPreconditions("other")) }, refused: apierrors.IsConflict},
		"another version": {options: func(*corev1.Pod) metav1.DeleteOptions {
			return atOnce(metav1.NewRVDeletionPrecondition("1").Preconditions)
		}, refused: apierrors.IsConflict},
		"a finalizer": {finalizers: []string{"example.com/wait"}, options: func(*corev1.Pod) metav1.DeleteOptions { return atOnce(nil) }, events: []watch.EventType{watch.Modified}},
		"a dry run": {options: func(*corev1.Pod) metav1.DeleteOptions {
			options := atOnce(nil)
			options.DryRun = []string{metav1.DryRunAll}
			return options
		}},
		"a shorter period": {options: func(*corev1.Pod) metav1.DeleteOptions {
			return metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](5)}
		}, events: []watch.EventType{watch.Modified}},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := pods.Create(t.Context(), terminatingPod(test.finalizers), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pods.Delete(t.Context(), made.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			terminating, err := pods.Get(t.Context(), made.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			events, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + made.Name, ResourceVersion: terminating.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			err = pods.Delete(t.Context(), made.Name, test.options(terminating))
			if refused := test.refused != nil && test.refused(err); refused != (test.refused != nil) || err != nil && !refused {
				t.Fatalf("answered with %v", err)
			}
			// A write that comes after shows that there are no more events.
			last := watch.EventType("")
			if test.events == nil || test.events[0] != watch.Deleted {
				if _, err := pods.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"last":""}}}`), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				last = watch.Modified
			}
			var got []watch.EventType
			for event := range events.ResultChan() {
				if _, labelled := event.Object.(*corev1.Pod).Labels["last"]; labelled && event.Type == last {
					break
				}
				got = append(got, event.Type)
				if event.Type == watch.Deleted {
					break
				}
			}
			if !slices.Equal(got, test.events) {
				t.Errorf("events %v, want %v", got, test.events)
			}
		})
	}
}

func terminatingPod(finalizers []string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "terminating-", Finalizers: finalizers},
		Spec: corev1.PodSpec{
			NodeName: "n", AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
}
