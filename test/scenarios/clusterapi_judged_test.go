// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// groups are those of the kinds of TestJudge.
var groups = map[string]string{
	"Cluster": "cluster.x-k8s.io", "Machine": "cluster.x-k8s.io", "MachineSet": "cluster.x-k8s.io", "MachineDeployment": "cluster.x-k8s.io",
	"Secret": "", "DevMachine": "infrastructure.cluster.x-k8s.io", "DevMachineTemplate": "infrastructure.cluster.x-k8s.io", "DevCluster": "infrastructure.cluster.x-k8s.io",
}

func nameOf(kind string) string {
	if kind == "Secret" {
		return "cluster-shim"
	}
	return strings.ToLower(kind)
}

// written is a version of an object of the Cluster c; its UID is its kind. "!" follows the kind of a controller.
func written(kind string, owners ...string) version {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "one", Name: nameOf(kind), UID: types.UID(kind), Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "cluster"},
	}}
	for _, owner := range owners {
		owner, controls := strings.CutSuffix(owner, "!")
		owner, version, found := strings.Cut(owner, " ")
		if !found {
			version = "v1beta2"
		}
		ref := metav1.OwnerReference{APIVersion: strings.TrimPrefix(groups[owner]+"/"+version, "/"), Kind: owner, Name: nameOf(owner), UID: types.UID(owner)}
		if controls {
			ref.Controller = &controls
		}
		m.OwnerReferences = append(m.OwnerReferences, ref)
	}
	r := graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: groups[kind], Version: "v1beta2"}, Kind: kind, Namespaced: true}
	return versionOf(r, m)
}

// classy is a version of an object that a topology has created.
func classy(kind string, owners ...string) version {
	v := written(kind, owners...)
	v.object.Labels[clusterapi.TopologyOwnedLabel] = ""
	return v
}

func gone(v version) version {
	v.gone = true
	return v
}

func going(v version) version {
	v.object.Deleting = true
	return v
}

func orphaning(v version) version {
	v.orphans = true
	return going(v)
}

func existing(v version) version {
	v.initial = true
	return v
}

func unlabelled(v version) version {
	v.object.Labels = nil
	return v
}

// TestJudge: versions that are as documented, and those that are not. They are written in this order.
func TestJudge(t *testing.T) {
	cluster := written("Cluster")
	shim := written("Secret", "Cluster")
	set, machine := written("MachineSet", "Cluster"), written("Machine", "MachineSet!")
	for name, test := range map[string]struct {
		versions []version
		restored bool
		want     string // the beginning of a fault, or "" for none
	}{
		"healthy":                            {versions: []version{cluster, set, machine, written("DevMachine", "MachineSet"), written("DevMachine", "Machine!")}},
		"as a user creates it":               {versions: []version{cluster, unlabelled(written("DevCluster")), written("DevCluster", "Cluster")}},
		"no owner, and not by a user":        {versions: []version{cluster, written("DevCluster")}, want: "undocumented-owners: DevCluster devcluster"},
		"a machine without owner":            {versions: []version{cluster, set, written("Machine")}, want: "undocumented-owners: Machine machine"},
		"a first owner again":                {versions: []version{cluster, set, machine, written("DevMachine", "Machine!"), written("DevMachine", "MachineSet")}, want: "undocumented-owners: DevMachine"},
		"a first owner beside the last":      {versions: []version{cluster, set, machine, written("DevMachine", "Machine!", "MachineSet")}, want: "undocumented-owners: DevMachine"},
		"a lost owner":                       {versions: []version{cluster, set, machine, written("Machine")}, want: "undocumented-owners: Machine"},
		"a template's lost owner":            {versions: []version{cluster, written("DevMachineTemplate"), written("DevMachineTemplate", "Cluster"), written("DevMachineTemplate")}, want: "lost-owners: DevMachineTemplate"},
		"lost while it is deleted":           {versions: []version{cluster, set, machine, going(written("Machine"))}},
		"orphaned":                           {versions: []version{cluster, set, machine, orphaning(set), written("Machine")}},
		"lost while its owner is deleted":    {versions: []version{cluster, set, machine, going(set), written("Machine")}, want: "undocumented-owners: Machine"},
		"an old version":                     {versions: []version{cluster, written("MachineSet", "Cluster v1alpha1")}, want: "unserved-version: MachineSet"},
		"an owner that has never existed":    {versions: []version{cluster, machine}, want: "absent-owner: Machine"},
		"an owner that comes later":          {versions: []version{set, cluster}, want: "absent-owner: MachineSet"},
		"an owner that is gone":              {versions: []version{cluster, gone(cluster), set}, want: "absent-owner: MachineSet"},
		"an owner that goes before it":       {versions: []version{cluster, set, gone(cluster), set, gone(set)}},
		"objects that existed, in any order": {versions: []version{existing(set), existing(cluster), machine}},
		"a shim that is written again": {versions: []version{
			cluster, shim, classy("DevCluster", "Secret"), classy("DevCluster", "Cluster!"), gone(shim), classy("DevCluster", "Cluster!", "Secret"), classy("DevCluster", "Cluster!"),
		}},
		"a shim alone again": {versions: []version{
			cluster, shim, classy("DevCluster", "Secret"), classy("DevCluster", "Cluster!"), classy("DevCluster", "Secret"),
		}, want: "undocumented-owners: DevCluster"},
		"another owner that is allowed": {versions: []version{cluster, set, machine, written("Machine", "Cluster")}, want: "lost-owners: Machine"},
		"restored":                      {versions: []version{cluster, written("MachineSet"), set, written("Machine"), machine}, restored: true},
		"restored, and lost again":      {versions: []version{cluster, written("MachineSet"), set, written("MachineSet")}, restored: true, want: "undocumented-owners: MachineSet"},
	} {
		kinds := map[schema.GroupKind]lint.Kind{}
		for kind, group := range groups {
			kinds[schema.GroupKind{Group: group, Kind: kind}] = lint.Kind{Namespaced: true, Versions: []string{strings.TrimPrefix(group+"/v1beta2", "/")}}
		}
		j := &judge{kinds: kinds, restored: test.restored, objects: map[types.UID]*known{}, firsts: map[string]int{}}
		for i := range test.versions {
			test.versions[i].revision = uint64(i + 1)
		}
		j.all(test.versions)
		found := slices.ContainsFunc(j.faults, func(fault string) bool { return strings.HasPrefix(fault, test.want) })
		if want := test.want != ""; want != (len(j.faults) > 0) || want != found {
			t.Errorf("%s: faults %q, want %q", name, j.faults, test.want)
		}
	}
}

// TestUnsettled: objects that have no owners of the table yet are named, templates among them.
func TestUnsettled(t *testing.T) {
	j := &judge{objects: map[types.UID]*known{}, firsts: map[string]int{}}
	j.all([]version{
		written("Cluster"), unlabelled(written("DevCluster")), written("DevMachineTemplate"), written("MachineSet", "Cluster"), going(written("Machine")),
	})
	got := strings.Join(j.unsettled(), "\n")
	if len(j.unsettled()) != 2 || !strings.Contains(got, "DevCluster one/devcluster") || !strings.Contains(got, "DevMachineTemplate one/devmachinetemplate") {
		t.Errorf("without owners of the table are:\n%s", got)
	}
}
