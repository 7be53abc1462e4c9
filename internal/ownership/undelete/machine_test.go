// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
)

// TestMachines: an undeletion says which machines of Cluster API live, and warns if no machine of a control plane does.
func TestMachines(t *testing.T) {
	item := func(group, kind, provider string, outcome ownership.UndeletionOutcome, labels ...string) *Item {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"providerID": provider}}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind})
		all := map[string]string{clusterapi.ClusterNameLabel: "c"}
		for _, label := range labels {
			all[label] = ""
		}
		o.SetLabels(all)
		return &Item{then: o, Outcome: outcome}
	}
	const core = clusterapi.Core
	cluster := func(paused bool) *Item {
		i := item(core, "Cluster", "", ownership.UndeletionPending)
		i.then.SetName("c")
		i.then.Object["spec"] = map[string]any{"paused": paused}
		return i
	}
	for name, tt := range map[string]struct {
		items   []*Item
		reasons []string
		warns   bool
		moved   bool
	}{
		"gone": {
			[]*Item{
				item(core, "Machine", "dev://a", ownership.UndeletionPending, clusterapi.ControlPlaneLabel), item(core, "Machine", "dev://b", ownership.UndeletionRestored),
				item(clusterapi.Infrastructure, "DevMachine", "dev://a", ownership.UndeletionPending), item(clusterapi.Infrastructure, "DevMachineTemplate", "", ownership.UndeletionPending),
			},
			[]string{"its machine dev://a is probably gone: a provider deletes it before it lets its object go", "its machine dev://b is probably gone: a provider deletes it before it lets its object go", "its machine dev://a is probably gone: a provider deletes it before it lets its object go", ""}, true, false,
		},
		"a control plane lives": {
			[]*Item{
				item(core, "Machine", "dev://a", ownership.UndeletionUnchanged, clusterapi.ControlPlaneLabel), item(core, "Machine", "dev://b", ownership.UndeletionPending, clusterapi.ControlPlaneLabel),
				item(core, "Machine", "", ownership.UndeletionPending),
			},
			[]string{"its machine was not deleted", "its machine dev://b is probably gone: a provider deletes it before it lets its object go", "it had no machine yet"}, false, false,
		},
		"orphans":    {[]*Item{item(core, "Machine", "dev://a", ownership.UndeletionAdopted, clusterapi.ControlPlaneLabel)}, []string{"its machine was not deleted"}, false, false},
		"no machine": {[]*Item{item("", "Pod", "", ownership.UndeletionPending, clusterapi.ControlPlaneLabel)}, []string{""}, false, false},
		"moved": {
			[]*Item{cluster(true), item(core, "Machine", "dev://a", ownership.UndeletionPending, clusterapi.ControlPlaneLabel), item(core, "Machine", "", ownership.UndeletionPending)},
			[]string{"", "its machine dev://a was not deleted: the provider was paused", "it had no machine yet"}, false, true,
		},
		"not moved": {
			[]*Item{cluster(false), item(core, "Machine", "dev://a", ownership.UndeletionPending, clusterapi.ControlPlaneLabel)},
			[]string{"", "its machine dev://a is probably gone: a provider deletes it before it lets its object go"}, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &undeletion{items: tt.items, report: &Report{}}
			u.explainMachines()
			var reasons []string
			for _, item := range tt.items {
				reasons = append(reasons, item.Reason)
			}
			if diff := cmp.Diff(tt.reasons, reasons); diff != "" {
				t.Error(diff)
			}
			if warned := strings.Contains(strings.Join(u.report.Warnings, "\n"), "control plane of Cluster c are probably gone"); warned != tt.warns {
				t.Errorf("warnings: %q", u.report.Warnings)
			}
			if moved := strings.Contains(strings.Join(u.report.Warnings, "\n"), "Cluster c was paused"); moved != tt.moved {
				t.Errorf("warnings: %q", u.report.Warnings)
			}
		})
	}
}
