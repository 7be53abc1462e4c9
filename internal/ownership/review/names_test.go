// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// naming makes an object name the template "template", as a MachineDeployment does, and sets when it was changed last.
func naming(changed time.Time, subresource string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", Subresource: subresource, Time: &metav1.Time{Time: changed}}})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c", UID: "c"}})
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{
			"apiGroup": clusterapi.Infrastructure, "kind": "DevMachineTemplate", "name": "template",
		}}}}
	}
}

// TestLintNames: a template without an owner is a finding if another object names it, which has not just begun to.
func TestLintNames(t *testing.T) {
	hour, now := time.Now().Add(-time.Hour), time.Now()
	for name, tt := range map[string]struct {
		fill  func(*world)
		want  []string
		hides string
	}{
		"nothing names it":       {fill: func(w *world) {}},
		"a MachineDeployment":    {fill: func(w *world) { w.add(deployments, "a", "d", naming(hour, "")) }, want: []string{"no owner, but is named by MachineDeployment d; Cluster API documents for a DevMachineTemplate: Clusters, or ClusterClasses"}},
		"whose status changed":   {fill: func(w *world) { w.add(deployments, "a", "d", naming(now, "status")) }, want: []string{"no owner, but is named by MachineDeployment d; Cluster API documents for a DevMachineTemplate: Clusters, or ClusterClasses"}},
		"which has just changed": {fill: func(w *world) { w.add(deployments, "a", "d", naming(now, "")) }},
		"in another namespace": {fill: func(w *world) {
			w.add(clusters, "b", "e", nil)
			w.add(deployments, "b", "d", func(o *unstructured.Unstructured) { naming(hour, "")(o); ownedBy(clusters, "e")(o); plainOwners(o) })
		}},
		"which may not be read":  {fill: func(w *world) { w.add(deployments, "a", "d", naming(hour, "")) }, hides: "machinedeployments"},
		"a kind that gives none": {fill: func(w *world) { w.add(widgets, "a", "w", naming(hour, "")) }},
		"which is being deleted": {fill: func(w *world) { w.add(deployments, "a", "d", deleting(naming(hour, ""))) }},
		"a class, and another": {fill: func(w *world) {
			w.add(deployments, "a", "d", naming(hour, ""))
			w.add(classes, "a", "k", func(o *unstructured.Unstructured) { naming(hour, "")(o); o.SetOwnerReferences(nil) })
		}, want: []string{"no owner, but is named by ClusterClass k, MachineDeployment d; Cluster API documents for a DevMachineTemplate: Clusters, or ClusterClasses"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.add(clusters, "a", "c", nil)
			w.add(machineTemplates, "a", "template", func(o *unstructured.Unstructured) { o.SetCreationTimestamp(metav1.Time{Time: hour}) })
			tt.fill(w)
			w.allowed = func(a authorizer.Attributes) bool { return tt.hides == "" || a.GetResource() != tt.hides }
			s, err := w.lint(ownership.OwnershipLintSpec{Profile: ownership.ProfileClusterAPI})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.Findings {
				got = append(got, f.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(s.Warnings) > 0 {
				t.Errorf("warnings %v, findings (-want +got):\n%s", s.Warnings, diff)
			}
		})
	}
}

// plainOwners makes no owner the controller.
func plainOwners(o *unstructured.Unstructured) {
	refs := o.GetOwnerReferences()
	for i := range refs {
		refs[i].Controller = nil
	}
	o.SetOwnerReferences(refs)
}

func deleting(change func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		held(change, "example.com/hold")(o)
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
	}
}
