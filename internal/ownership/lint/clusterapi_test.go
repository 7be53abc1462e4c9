// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// groupOf is the group of a kind of Cluster API.
func groupOf(kind string) string {
	switch name, _ := strings.CutSuffix(kind, "Template"); {
	case kind == "Secret", kind == "ConfigMap", kind == "ServiceAccount":
		return ""
	case kind == "ExtensionConfig":
		return clusterapi.Runtime
	case strings.HasPrefix(kind, "ClusterResourceSet"):
		return clusterapi.Addons
	case strings.HasSuffix(name, "ControlPlane"):
		return clusterapi.ControlPlane
	case strings.HasSuffix(name, "Config"):
		return clusterapi.Bootstrap
	case strings.HasPrefix(kind, "Dev"):
		return clusterapi.Infrastructure
	}
	return clusterapi.Core
}

// capiObject is an object of Cluster API, an hour old. The kind may be followed by a label. The owners are as "Cluster c" and, for a controller,
// "Machine! m".
func capiObject(kind string, owners ...string) *Object {
	kind, label, labelled := strings.Cut(kind, " ")
	o := &Object{Object: graph.Object{
		Resource:  graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: groupOf(kind), Version: "v1beta2"}, Kind: kind},
		Namespace: "one", Name: "o", UID: "o",
	}, Created: noon.Add(-time.Hour)}
	if labelled {
		o.Labels = map[string]string{label: ""}
	}
	for _, title := range owners {
		o.Owners = append(o.Owners, capiOwner(title))
	}
	return o
}

func capiOwner(title string) graph.Owner {
	kind, name, _ := strings.Cut(title, " ")
	kind, controls := strings.CutSuffix(kind, "!")
	version := schema.GroupVersion{Group: groupOf(kind), Version: "v1beta2"}
	ref := metav1.OwnerReference{APIVersion: version.String(), Kind: kind, Name: name, UID: types.UID(title)}
	if controls {
		ref.Controller = new(true)
	}
	return graph.Owner{OwnerReference: ref, Standing: "solid", Followed: true}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// servedCAPI has the kinds of the test's objects.
func servedCAPI() map[schema.GroupKind]Kind {
	kinds := map[schema.GroupKind]Kind{}
	for _, kind := range []string{
		"Secret", "ConfigMap", "ServiceAccount", "ExtensionConfig", "ClusterResourceSet", "ClusterResourceSetBinding", "KubeadmControlPlane",
		"KubeadmControlPlaneTemplate", "KubeadmConfig", "KubeadmConfigTemplate", "DevCluster", "DevMachine", "DevMachineTemplate", "DevMachinePool",
		"DevClusterTemplate", "DevMachinePoolTemplate",
		"Cluster", "ClusterClass", "Machine", "MachineSet", "MachineDeployment", "MachinePool", "MachineHealthCheck",
	} {
		gk := schema.GroupKind{Group: groupOf(kind), Kind: kind}
		kinds[gk] = Kind{Namespaced: true, Collected: true, Complete: true, Versions: []string{gk.Group + "/v1beta2"}}
	}
	return kinds
}

func capiFindings(objects ...*Object) []string {
	var found []string
	for _, f := range Check(NewSnapshot(objects, servedCAPI()).Under(ProfileOf(ownership.ProfileClusterAPI), noon)) {
		found = append(found, fmt.Sprintf("%s: %s", f.Rule, f.Message))
	}
	return found
}

// TestClusterAPITable has each row of the table: what is allowed, and what is not.
func TestClusterAPITable(t *testing.T) {
	for kind, rows := range map[string]struct{ allowed, refused [][]string }{
		"ExtensionConfig":   {[][]string{nil}, [][]string{{"Cluster c"}}},
		"ClusterClass":      {[][]string{nil}, [][]string{{"Cluster c"}}},
		"Cluster":           {[][]string{nil}, [][]string{{"ClusterClass c"}}},
		"MachineDeployment": {[][]string{{"Cluster c"}}, [][]string{nil, {"Cluster! c"}, {"ClusterClass c"}, {"Cluster c", "Cluster d"}}},
		"MachineSet":        {[][]string{{"MachineDeployment! d"}, {"Cluster c"}}, [][]string{nil, {"MachineDeployment d"}, {"MachineDeployment! d", "Cluster c"}}},
		"MachineSet " + clusterapi.DeploymentNameLabel: {[][]string{{"MachineDeployment! d"}}, [][]string{nil, {"Cluster c"}}},
		"Machine":                                              {[][]string{{"MachineSet! s"}, {"KubeadmControlPlane! k"}, {"MachinePool! p"}, {"Cluster c"}}, [][]string{nil, {"MachineSet s"}, {"MachineDeployment! d"}}},
		"Machine " + clusterapi.SetNameLabel:                   {[][]string{{"MachineSet! s"}}, [][]string{nil, {"Cluster c"}, {"KubeadmControlPlane! k"}}},
		"Machine " + clusterapi.PoolNameLabel:                  {[][]string{{"MachinePool! p"}}, [][]string{nil, {"Cluster c"}, {"MachineSet! s"}}},
		"Machine " + clusterapi.ControlPlaneNameLabel:          {[][]string{{"KubeadmControlPlane! k"}}, [][]string{nil, {"Cluster c"}, {"MachineSet! s"}}},
		"MachineHealthCheck":                                   {[][]string{{"Cluster c"}}, [][]string{nil, {"MachineDeployment d"}}},
		"MachinePool":                                          {[][]string{{"Cluster c"}}, [][]string{nil, {"Cluster! c"}}},
		"ClusterResourceSet":                                   {[][]string{nil}, [][]string{{"Cluster c"}}},
		"ClusterResourceSetBinding":                            {[][]string{{"ClusterResourceSet a"}, {"ClusterResourceSet a", "ClusterResourceSet b"}}, [][]string{nil, {"Cluster c"}, {"ClusterResourceSet a", "Cluster c"}}},
		"KubeadmControlPlane":                                  {[][]string{{"Cluster c"}}, [][]string{nil, {"Cluster! c"}, {"ClusterClass c"}}},
		"KubeadmControlPlane " + clusterapi.TopologyOwnedLabel: {[][]string{{"Cluster! c"}}, [][]string{nil, {"Cluster c"}, {"ClusterClass c"}}},
		"KubeadmControlPlaneTemplate":                          {[][]string{nil, {"ClusterClass c"}, {"ClusterClass c", "ClusterClass d"}}, [][]string{{"ClusterClass! c"}, {"Cluster c"}, {"Machine m"}}},
		"KubeadmConfig":                                        {[][]string{{"Machine! m"}, {"MachinePool! p"}}, [][]string{nil, {"Machine m"}, {"MachinePool p"}, {"KubeadmControlPlane k"}, {"MachinePool! p", "Cluster c"}}},
		"KubeadmConfig " + clusterapi.TopologyOwnedLabel:       {[][]string{{"Machine! m"}, {"MachinePool! p", "Cluster c"}}, [][]string{nil, {"MachinePool! p"}, {"Cluster c"}}},
		"KubeadmConfigTemplate":                                {[][]string{nil, {"Cluster c"}, {"Cluster c", "Cluster d"}, {"ClusterClass c"}}, [][]string{{"MachineDeployment d"}, {"Cluster! c"}, {"Cluster c", "ClusterClass c"}}},
		"DevCluster":                                           {[][]string{{"Cluster c"}}, [][]string{nil, {"Cluster! c"}, {"Machine! m"}}},
		"DevCluster " + clusterapi.TopologyOwnedLabel:          {[][]string{{"Cluster! c"}}, [][]string{nil, {"Cluster c"}}},
		"DevClusterTemplate":                                   {[][]string{nil, {"ClusterClass c"}, {"ClusterClass c", "ClusterClass d"}}, [][]string{{"ClusterClass! c"}, {"Cluster c"}}},
		"DevMachine":                                           {[][]string{{"Machine! m"}, {"Machine! m", "DevMachinePool p"}}, [][]string{nil, {"Machine m"}, {"Cluster c"}, {"Machine! m", "Cluster c"}, {"DevMachinePool! p", "Machine m"}}},
		"DevMachineTemplate":                                   {[][]string{nil, {"Cluster c"}, {"ClusterClass c"}}, [][]string{{"KubeadmControlPlane k"}}},
		"DevMachinePool":                                       {[][]string{{"MachinePool! p"}}, [][]string{nil, {"MachinePool p"}, {"Cluster c"}, {"MachinePool! p", "Cluster c"}}},
		"DevMachinePool " + clusterapi.TopologyOwnedLabel:      {[][]string{{"MachinePool! p", "Cluster c"}}, [][]string{nil, {"MachinePool! p"}, {"Cluster c"}}},
		"DevMachinePoolTemplate":                               {[][]string{nil, {"ClusterClass c"}}, [][]string{{"Cluster c"}}},
		"Secret":                                               {[][]string{nil, {"KubeadmControlPlane! k"}, {"KubeadmConfig! k"}, {"ClusterResourceSet a", "ClusterResourceSet b"}, {"Cluster c"}}, [][]string{{"KubeadmControlPlane k"}, {"Machine! m"}}},
		"ConfigMap":                                            {[][]string{nil, {"ClusterResourceSet a"}, {"Cluster c"}}, [][]string{{"Cluster! c"}, {"ClusterResourceSet! a"}}},
		"ServiceAccount":                                       {allowed: [][]string{nil, {"Cluster c", "Machine m"}}}, // none of Cluster API's
	} {
		for _, owners := range rows.allowed {
			if found := capiFindings(withOwners(capiObject(kind, owners...))...); found != nil {
				t.Errorf("%s with %q: %q", kind, owners, found)
			}
		}
		for _, owners := range rows.refused {
			if found := capiFindings(withOwners(capiObject(kind, owners...))...); len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), "undocumented-owners: ") {
				t.Errorf("%s with %q: %q", kind, owners, found)
			}
			young := capiObject(kind, owners...)
			young.Created = noon.Add(-time.Second)
			if found := capiFindings(withOwners(young)...); found != nil {
				t.Errorf("a young %s with %q: %q", kind, owners, found)
			}
		}
	}
}

// withOwners returns an object and its owners, which are being deleted, so that nothing is found about them.
func withOwners(o *Object) []*Object {
	all := []*Object{o}
	for _, ref := range o.Owners {
		gk := ownerKind(ref)
		all = append(all, &Object{Object: graph.Object{
			Resource:  graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1beta2"}, Kind: gk.Kind},
			Namespace: o.Namespace, Name: ref.Name, UID: ref.UID, Deleting: true,
		}})
	}
	return all
}

// TestClusterAPIFindings has what the profile says, keeps and leaves out besides the table.
func TestClusterAPIFindings(t *testing.T) {
	lost := func(o *Object, titles ...string) []*Object {
		all := withOwners(o)
		for _, title := range titles {
			ref := capiOwner(title)
			o.Lost = append(o.Lost, ref.OwnerReference)
			all = append(all, withOwners(&Object{Object: graph.Object{Namespace: "one", Owners: []graph.Owner{ref}}})[1])
		}
		return all
	}
	const remedy = "Nothing to do: the controllers of Cluster API correct it, unless the Cluster is paused or they do not run."
	for name, tt := range map[string]struct {
		objects []*Object
		want    string
		remedy  string
	}{
		"what is missing":       {objects: []*Object{capiObject("MachineSet")}, want: "no owner; Cluster API documents for a MachineSet: MachineDeployment as its controller, or Cluster"},
		"what must not be":      {objects: withOwners(capiObject("ClusterClass", "Cluster c")), want: "owned by Cluster c; Cluster API documents for a ClusterClass: no owner"},
		"the owner of a pool":   {objects: withOwners(capiObject("DevMachinePool", "Cluster c")), want: "owned by Cluster c; Cluster API documents for a DevMachinePool: MachinePool as its controller"},
		"several of one kind":   {objects: withOwners(capiObject("ClusterResourceSetBinding", "Cluster c")), want: "owned by Cluster c; Cluster API documents for a ClusterResourceSetBinding: ClusterResourceSets"},
		"another Cluster":       {objects: withOwners(labelled(capiObject("MachineDeployment", "Cluster c"), clusterAPI.rootLabel, "d")), want: "owned by Cluster c, but its label cluster.x-k8s.io/cluster-name names d"},
		"its own Cluster":       {objects: withOwners(labelled(capiObject("MachineDeployment", "Cluster c"), clusterAPI.rootLabel, "c"))},
		"lost":                  {objects: lost(capiObject("MachineDeployment"), "Cluster c"), want: "the reference to Cluster c was removed, but the owner exists", remedy: remedy},
		"lost by a template":    {objects: lost(namedBy(capiObject("DevMachineTemplate"), "MachineSet s"), "Cluster c"), want: "the reference to Cluster c was removed, but the owner exists", remedy: remedy},
		"a class's":             {objects: lost(namedBy(capiObject("DevMachineTemplate"), "ClusterClass k"), "ClusterClass k"), want: "the reference to ClusterClass k was removed, but the owner exists", remedy: remedy},
		"a machine":             {objects: lost(capiObject("Machine "+clusterapi.ControlPlaneNameLabel), "KubeadmControlPlane! k"), want: "the reference to KubeadmControlPlane k was removed, but the owner exists", remedy: remedy},
		"nothing names it":      {objects: []*Object{capiObject("DevMachineTemplate")}},
		"named":                 {objects: []*Object{namedBy(capiObject("DevMachineTemplate"), "KubeadmControlPlane k", "MachineSet s")}, want: "no owner, but is named by KubeadmControlPlane k, MachineSet s; Cluster API documents for a DevMachineTemplate: Clusters, or ClusterClasses"},
		"named by its class":    {objects: []*Object{namedBy(capiObject("DevClusterTemplate"), "ClusterClass k")}, want: "no owner, but is named by ClusterClass k; Cluster API documents for a DevClusterTemplate: ClusterClasses"},
		"named and owned":       {objects: withOwners(namedBy(capiObject("DevMachineTemplate", "Cluster c"), "MachineSet s"))},
		"one of two lost":       {objects: lost(capiObject("ConfigMap", "ClusterResourceSet a"), "ClusterResourceSet b"), want: "the reference to ClusterResourceSet b was removed, but the owner exists", remedy: remedy},
		"lost by a Secret":      {objects: lost(capiObject("Secret"), "KubeadmControlPlane! k"), want: "the reference to KubeadmControlPlane k was removed, but the owner exists", remedy: remedy},
		"the first owner goes":  {objects: lost(capiObject("KubeadmConfig", "Machine! m"), "KubeadmControlPlane k")},
		"an old version":        {objects: withOwners(inOldVersion(capiObject("MachineDeployment", "Cluster c"))), want: "Cluster c is named in version cluster.x-k8s.io/v1alpha1, which is not served; cluster.x-k8s.io/v1beta2 is", remedy: remedy},
		"a Secret of its own":   {objects: []*Object{labelled(capiObject("Secret", "Machine! m"), clusterAPI.rootLabel, "c"), withOwners(capiObject("Secret", "Machine! m"))[1]}, want: "owned by Machine m as its controller; Cluster API documents for a Secret: ControlPlane as its controller, or Config as its controller, or Cluster, or ClusterResourceSets"},
		"somebody else's":       {objects: withOwners(capiObject("Secret", "ServiceAccount a"))},
		"the collector is busy": {objects: []*Object{goneOwner(capiObject("MachineDeployment", "Cluster c"))}},
	} {
		t.Run(name, func(t *testing.T) {
			findings := Check(NewSnapshot(tt.objects, servedCAPI()).Under(clusterAPI, noon))
			if tt.want == "" {
				if len(findings) > 0 {
					t.Errorf("%+v", findings)
				}
				return
			}
			if len(findings) != 1 {
				t.Fatalf("%d findings: %+v", len(findings), findings)
			}
			if diff := cmp.Diff(tt.want, findings[0].Message); diff != "" {
				t.Error(diff)
			}
			if findings[0].Fix != nil || tt.remedy != "" && findings[0].Remedy != tt.remedy || (findings[0].MendedBy != "") != (tt.remedy != "") {
				t.Errorf("%+v", findings[0])
			}
		})
	}
}

func inOldVersion(o *Object) *Object {
	o.Owners[0].APIVersion = clusterapi.Core + "/v1alpha1"
	return o
}

func goneOwner(o *Object) *Object {
	o.Owners[0].Standing = dangles
	return o
}

// TestClusterAPIHolds: a hold is found, unless the undeletion that set it may be at work.
func TestClusterAPIHolds(t *testing.T) {
	for _, test := range []struct {
		name       string
		undeletion string
		age        time.Duration
		found      bool
	}{
		{"of a user", "", 0, true},
		{"of an undeletion at work", "cluster/c", Settling - time.Second, false},
		{"of an undeletion that has ended", "cluster/c", Settling, true},
	} {
		o := capiObject("ClusterClass")
		o.Created, o.Hold = noon.Add(-test.age), &ownership.Hold{Undeletion: test.undeletion, Message: "held"}
		if found := capiFindings(o); (len(found) == 1) != test.found {
			t.Errorf("a hold %s: %q", test.name, found)
		}
	}
}

func namedBy(o *Object, titles ...string) *Object {
	for _, title := range titles {
		kind, name, _ := strings.Cut(title, " ")
		o.NamedBy = append(o.NamedBy, Namer{kind, name})
	}
	return o
}

// TestUncorrected has the faults that no controller of Cluster API corrects, so that a repair does.
func TestUncorrected(t *testing.T) {
	lost := func(o *Object, title string) *Object {
		o.Lost = append(o.Lost, capiOwner(title).OwnerReference)
		return o
	}
	for name, o := range map[string]*Object{
		"a template that nothing names":           lost(capiObject("DevMachineTemplate"), "Cluster c"),
		"a template that its class names no more": lost(namedBy(capiObject("DevMachineTemplate"), "MachineSet s"), "ClusterClass c"),
		"its old version":                         inOldVersion(capiObject("DevMachineTemplate", "Cluster c")),
		"a kubeconfig of the Cluster":             lost(capiObject("Secret "+clusterapi.ClusterNameLabel), "Cluster c"),
		"a lock":                                  inOldVersion(capiObject("ConfigMap", "Cluster c")),
	} {
		owner := capiOwner("Cluster c")
		if len(o.Lost) > 0 {
			owner.OwnerReference = o.Lost[0]
		}
		gk := ownerKind(owner)
		objects := []*Object{o, {Object: graph.Object{
			Resource:  graph.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1beta2"}, Kind: gk.Kind},
			Namespace: o.Namespace, Name: owner.Name, UID: owner.UID, Deleting: true,
		}}}
		findings := Check(NewSnapshot(objects, servedCAPI()).Under(clusterAPI, noon))
		if len(findings) != 1 || findings[0].Fix == nil || findings[0].MendedBy != "" || strings.Contains(findings[0].Remedy, "Nothing to do") {
			t.Errorf("%s: %+v", name, findings)
		}
	}
}

// TestNeedsNames: what names a template is looked up only if that matters.
func TestNeedsNames(t *testing.T) {
	lost := capiObject("DevMachineTemplate", "Cluster c")
	lost.Lost = []metav1.OwnerReference{capiOwner("Cluster d").OwnerReference}
	for _, tt := range []struct {
		object *Object
		want   bool
	}{
		{capiObject("DevMachineTemplate"), true},
		{capiObject("DevMachineTemplate", "Cluster c"), false},
		{inOldVersion(capiObject("DevMachineTemplate", "Cluster c")), true},
		{lost, true},
		{capiObject("Secret"), false},
		{capiObject("MachineSet"), false},
		{capiObject("ServiceAccount"), false},
	} {
		if got := clusterAPI.NeedsNames(tt.object, servedCAPI()); got != tt.want {
			t.Errorf("%s with %v: %v", tt.object.Kind, tt.object.Owners, got)
		}
	}
}
