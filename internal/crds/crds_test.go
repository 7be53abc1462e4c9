// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const things = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

func existing(version string, served, ready bool) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com", Labels: map[string]string{"of": "user"}}}
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: served}}
	if ready {
		establish(d)
	}
	return d
}

func establish(d *apiextensionsv1.CustomResourceDefinition) {
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
}

func TestExistingDefinitionIsKept(t *testing.T) {
	client := fake.NewClientset(existing("v2", true, true))
	if err := Ensure(t.Context(), client, []byte(things), "v2"); err != nil {
		t.Fatal(err)
	}
	got, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "things.example.com", metav1.GetOptions{})
	if err != nil || got.Labels["of"] != "user" || got.Spec.Group != "" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDefinitionWithoutTheVersion(t *testing.T) {
	for name, d := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"other version": existing("v1", true, true), "not served": existing("v2", false, true),
	} {
		err := Ensure(t.Context(), fake.NewClientset(d), []byte(things), "v2")
		if err == nil || !strings.Contains(err.Error(), "does not serve the version v2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEnsureWaits(t *testing.T) {
	client := fake.NewClientset()
	done := make(chan error, 1)
	go func() { done <- Ensure(t.Context(), client, []byte(things), "v2") }()
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	select {
	case err := <-done:
		t.Fatal("returned before the definition was established:", err)
	case <-time.After(500 * time.Millisecond):
	}
	d, err := definitions.Get(t.Context(), "things.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	establish(d)
	if _, err := definitions.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEnsureEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Ensure(ctx, fake.NewClientset(), []byte(things), "v2"); err == nil || !strings.Contains(err.Error(), "things.example.com is established") {
		t.Errorf("got %v", err)
	}
}

func TestMalformedDefinition(t *testing.T) {
	if err := Ensure(t.Context(), fake.NewClientset(), []byte("spek: {}"), "v2"); err == nil {
		t.Error("no error")
	}
}
