// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/lint"
)

// version is a state of an object that the API has served, or its end.
type version struct {
	// revision is that of the store. It orders the versions of all objects, because all are in one store.
	revision uint64
	// initial is set for an object that existed when the record began.
	initial bool
	object  lint.Object
	// orphans is set for an object that is being deleted, and whose dependents lose their references to it before it goes.
	orphans bool
	gone    bool
}

// versionOf returns a version of an object, from its metadata.
func versionOf(r graph.Resource, m *metav1.PartialObjectMetadata) version {
	v := version{revision: parseRevision(m.ResourceVersion), orphans: slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)}
	v.object = lint.Object{
		Object: graph.Object{Resource: r, Namespace: m.Namespace, Name: m.Name, UID: m.UID, Deleting: m.DeletionTimestamp != nil},
		Labels: m.Labels,
	}
	for _, ref := range m.OwnerReferences {
		// Hidden: whether the owner exists is not judged by one object, but by all versions of all objects.
		v.object.Owners = append(v.object.Owners, graph.Owner{OwnerReference: ref, Standing: lint.Hidden})
	}
	return v
}

func (v *version) String() string {
	return fmt.Sprintf("%s %s/%s (version %d)", v.object.Kind, v.object.Namespace, v.object.Name, v.revision)
}

// owners describes the owners as firstOwners does.
func (v *version) owners() string {
	var all []string
	for _, ref := range v.object.Owners {
		owner := ref.Kind
		if ref.Kind == "Secret" {
			owner += " " + ref.Name
		}
		if ptr.Deref(ref.Controller, false) {
			owner += "!"
		}
		all = append(all, owner)
	}
	slices.Sort(all)
	return strings.Join(all, "/")
}

// firstOwner has owners of an object of a kind that come before those of the table, because of how the object is created. They are accepted until the
// object has owners of the table, and not after that.
type firstOwner struct {
	group, kind string // the kind is a pattern
	// owners is a pattern of the sorted kinds of all owners; "!" follows that of a controller, and the name that of a Secret.
	owners string
	// byUser is set if only users create such objects: without the label of their Cluster, which their controller sets with the owner.
	byUser bool
	// again is set if an object may have them for a while when it has had owners of the table, and if the owners may be gone.
	again bool
}

// firstOwners are all exceptions from the table.
var firstOwners = []firstOwner{
	// A user creates the objects that the Cluster names, and the Cluster's controller makes the Cluster their owner.
	{group: clusterapi.ControlPlane, kind: "*ControlPlane", byUser: true},
	{group: clusterapi.Infrastructure, kind: "*Cluster", byUser: true},
	// So it is with the templates that a ClusterClass, a control plane or a MachineDeployment names.
	{group: clusterapi.ControlPlane, kind: "*Template", byUser: true},
	{group: clusterapi.Bootstrap, kind: "*Template", byUser: true},
	{group: clusterapi.Infrastructure, kind: "*Template", byUser: true},
	// With a topology, the Secret <cluster>-shim owns them until the Cluster names them. It goes when the Cluster owns both. A server-side apply whose
	// cache still has that owner writes it once again, and the garbage collector removes it.
	{group: clusterapi.ControlPlane, kind: "*ControlPlane", owners: "Secret *-shim"},
	{group: clusterapi.ControlPlane, kind: "*ControlPlane", owners: "Cluster!/Secret *-shim", again: true},
	{group: clusterapi.Infrastructure, kind: "*Cluster", owners: "Secret *-shim"},
	{group: clusterapi.Infrastructure, kind: "*Cluster", owners: "Cluster!/Secret *-shim", again: true},
	// A user or a topology creates these, and their controllers make the Cluster their owner. The label is set before that.
	{group: clusterapi.Core, kind: "MachineDeployment"},
	{group: clusterapi.Core, kind: "MachineHealthCheck"},
	{group: clusterapi.Core, kind: "MachinePool"},
	// A user creates what a MachinePool names.
	{group: clusterapi.Bootstrap, kind: "*Config", byUser: true},
	{group: clusterapi.Infrastructure, kind: "*MachinePool", byUser: true},
	// The parts of a Machine exist before it: what creates the Machine owns them, without being their controller, until the Machine does.
	{group: clusterapi.Bootstrap, kind: "*Config", owners: "MachineSet"},
	{group: clusterapi.Bootstrap, kind: "*Config", owners: "*ControlPlane"},
	{group: clusterapi.Infrastructure, kind: "*Machine", owners: "MachineSet"},
	{group: clusterapi.Infrastructure, kind: "*Machine", owners: "*ControlPlane"},
}

func (f firstOwner) allows(v *version, settled bool) bool {
	// Cannot fail: the patterns are those above.
	kind, _ := path.Match(f.kind, v.object.Kind)
	owners, _ := path.Match(f.owners, v.owners())
	return kind && owners && f.group == v.object.Group && !(f.byUser && v.object.Labels[clusterapi.ClusterNameLabel] != "") && (f.again || !settled)
}

// known is what is known of an object.
type known struct {
	version // the newest
	// settled is set when the object has had owners of the table.
	settled bool
	// orphaned is set when the object lost a reference to an owner whose deletion orphans its dependents, as a move deletes the originals.
	orphaned bool
}

// judge holds the versions of all objects against the table of owners, in the order of their revisions.
type judge struct {
	kinds map[schema.GroupKind]lint.Kind
	// restored is set if a backup tool creates the objects, without owners.
	restored bool
	objects  map[types.UID]*known
	// faults and seen are those since the last check.
	faults []string
	seen   int
	// firsts counts the versions with owners that an object may have at first, by its kind and their kinds.
	firsts map[string]int
}

// table are the owners that Cluster API documents, as Kindred's lint has them.
var table = lint.ProfileOf(ownership.ProfileClusterAPI)

// all judges versions.
func (j *judge) all(versions []version) {
	slices.SortStableFunc(versions, func(a, b version) int {
		if a.initial != b.initial {
			return map[bool]int{true: -1, false: 1}[a.initial]
		}
		return cmp.Compare(a.revision, b.revision)
	})
	for _, v := range versions {
		j.see(v)
	}
}

func (j *judge) see(v version) {
	j.seen++
	o := j.objects[v.object.UID]
	if o == nil {
		o = &known{}
		j.objects[v.object.UID] = o
	}
	before := o.object.Owners
	o.version = v
	if v.gone || v.object.Deleting || o.orphaned || !o.settled && !table.Covers(&v.object) {
		return
	}
	lost := without(before, v.object.Owners)
	if slices.ContainsFunc(lost, j.orphans) {
		o.orphaned = true
		return
	}
	if i := slices.IndexFunc(lost, j.lives); o.settled && i >= 0 {
		j.fault("lost-owners", v, fmt.Sprintf("it has lost its owner %s %s, which lives", lost[i].Kind, lost[i].Name))
	}
	first := j.isFirst(v, o.settled)
	for _, ref := range without(v.object.Owners, before) {
		if why := j.misses(ref); why != "" && !v.initial && !(first && o.settled) {
			j.fault("absent-owner", v, why)
		}
	}
	switch faults := j.findings(v); {
	case len(faults) == 0 && len(v.object.Owners) > 0:
		o.settled = true
	case len(faults) == 0:
	case first:
		j.firsts[v.object.Kind+" of "+v.owners()]++
	default:
		for _, f := range faults {
			j.fault(string(f.Rule), v, f.Message)
		}
	}
}

func (j *judge) fault(rule string, v version, message string) {
	j.faults = append(j.faults, fmt.Sprintf("%s: %s %s (version %d): %s", rule, v.object.Kind, v.object.Name, v.revision, message))
}

// without returns the references that name no owner of others.
func without(refs, others []graph.Owner) []graph.Owner {
	return slices.DeleteFunc(slices.Clone(refs), func(ref graph.Owner) bool {
		return slices.ContainsFunc(others, func(other graph.Owner) bool { return other.UID == ref.UID })
	})
}

// lives reports whether an owner exists and is not being deleted.
func (j *judge) lives(ref graph.Owner) bool {
	owner := j.objects[ref.UID]
	return owner != nil && !owner.gone && !owner.object.Deleting
}

// orphans reports whether the deletion of an owner orphans its dependents.
func (j *judge) orphans(ref graph.Owner) bool {
	owner := j.objects[ref.UID]
	return owner != nil && owner.version.orphans && owner.object.Deleting
}

// misses says why a reference that was just written names no object.
func (j *judge) misses(ref graph.Owner) string {
	owner := j.objects[ref.UID]
	switch {
	case owner == nil:
		return fmt.Sprintf("its new owner %s %s has never existed", ref.Kind, ref.Name)
	case owner.gone:
		return fmt.Sprintf("its new owner %s %s is gone since revision %d", ref.Kind, ref.Name, owner.revision)
	case owner.object.Kind != ref.Kind || owner.object.Name != ref.Name:
		return fmt.Sprintf("its new owner %s %s is %s", ref.Kind, ref.Name, &owner.version)
	}
	return ""
}

// findings compares one version with the table, and the versions that it names its owners in with those that the API prefers.
func (j *judge) findings(v version) []lint.Finding {
	s := lint.NewSnapshot([]*lint.Object{&v.object}, j.kinds).Under(table, time.Now())
	return lint.Check(s, ownership.RuleUndocumentedOwners, ownership.RuleTwoControllers, ownership.RuleStaleVersion, ownership.RuleUnservedVersion)
}

// isFirst reports whether a version has owners that an object may have before those of the table.
func (j *judge) isFirst(v version, settled bool) bool {
	return j.restored && !settled && len(v.object.Owners) == 0 ||
		slices.ContainsFunc(firstOwners, func(f firstOwner) bool { return f.allows(&v, settled) })
}

// unsettled are the objects that have no owners of the table yet. Templates without owners are among them, although the table allows them: in the
// scenarios, all are in use.
func (j *judge) unsettled() []string {
	var all []string
	for o := range maps.Values(j.objects) {
		if o.gone || o.object.Deleting || o.orphaned {
			continue
		}
		bare := len(o.object.Owners) == 0 && strings.HasSuffix(o.object.Kind, "Template") && table.Covers(&o.object)
		if bare || len(j.findings(o.version)) > 0 {
			all = append(all, fmt.Sprintf("%s is owned by %q", &o.version, o.version.owners()))
		}
	}
	slices.Sort(all)
	return all
}
