// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func testCatalog() *catalog {
	c := &catalog{byName: map[schema.GroupVersionResource]*resource{}}
	c.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{
		{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get", "create"}},
		{Name: "pods/status", Kind: "Pod", Verbs: metav1.Verbs{"update"}},
		{Name: "events", Kind: "Event", Namespaced: true},
	})
	c.add(schema.GroupVersion{Group: "autoscaling", Version: "v2"}, []metav1.APIResource{{Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true}})
	c.add(schema.GroupVersion{Group: "autoscaling", Version: "v1"}, []metav1.APIResource{{Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Namespaced: true}})
	c.add(schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}, []metav1.APIResource{{Name: "events", Kind: "Event", Namespaced: true}})
	return c
}

func TestChoose(t *testing.T) {
	for names, want := range map[string]string{
		"":                                     "pods events horizontalpodautoscalers.autoscaling/v2 horizontalpodautoscalers.autoscaling events.events.k8s.io",
		"pods":                                 "pods",
		"Pod":                                  "pods",
		"events":                               "events events.events.k8s.io",
		"events.events.k8s.io":                 "events.events.k8s.io",
		"core":                                 "pods events",
		"autoscaling":                          "horizontalpodautoscalers.autoscaling/v2 horizontalpodautoscalers.autoscaling",
		"autoscaling/v1":                       "horizontalpodautoscalers.autoscaling",
		"autoscaling/v2,pods,core":             "horizontalpodautoscalers.autoscaling/v2 pods events",
		"horizontalpodautoscalers.autoscaling": "horizontalpodautoscalers.autoscaling/v2 horizontalpodautoscalers.autoscaling",
	} {
		var list []string
		if names != "" {
			list = strings.Split(names, ",")
		}
		chosen, err := testCatalog().choose(list)
		if err != nil {
			t.Errorf("%s: %v", names, err)
		}
		var got []string
		for _, r := range chosen {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: %s", names, diff)
		}
	}
	if _, err := testCatalog().choose([]string{"ponies"}); err == nil {
		t.Error("ponies are served")
	}
}

func TestCollection(t *testing.T) {
	c := testCatalog()
	if got, want := c.order[0].collection("a"), "/api/v1/namespaces/a/pods"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := c.order[2].collection("a"), "/apis/autoscaling/v2/namespaces/a/horizontalpodautoscalers"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, found := c.order[0].subresources["status"]; !found {
		t.Error("pods have no status")
	}
}

// TestOf: variants belong to the resource of their kind and version, bodies to the resource in
// their file's name.
func TestOf(t *testing.T) {
	c := testCatalog()
	all := []manifest{
		{object: object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`), resource: "pods"},
		{object: object(t, `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler"}`), resource: "horizontalpodautoscalers"},
		{object: object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`), resource: "pods", subresource: "status"},
		{object: object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`), resource: "pods", subresource: "none"},
	}
	variants, bodies := of(all, c.order[0])
	if len(variants) != 1 || len(bodies) != 1 || bodies[0].subresource != "status" {
		t.Errorf("pods: %v, %v", variants, bodies)
	}
	if variants, _ := of(all, c.order[2]); len(variants) != 0 {
		t.Errorf("autoscaling/v2: %v", variants)
	}
	if variants, _ := of(all, c.order[3]); len(variants) != 1 {
		t.Errorf("autoscaling/v1: %v", variants)
	}
}
