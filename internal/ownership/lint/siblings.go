// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/clusterapi"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// siblingLabels are labels that controllers set on the objects that they create, with a distinct
// value for each template, Job, cluster or instance. Objects of one kind and namespace with the
// same value are siblings.
var siblingLabels = []string{
	"pod-template-hash",
	"controller-revision-hash",
	"batch.kubernetes.io/job-name",
	clusterapi.ClusterNameLabel,
	"app.kubernetes.io/instance",
}

// sameMaker are labels in which siblings must also agree: an object that a user adds to an
// instance by hand, or with another tool, is not a sibling of the objects of its operator.
var sameMaker = []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "app.kubernetes.io/managed-by"}

// enoughOwned is the minimum number of siblings with an owner for the rule no-owner. They must
// also be the majority. Otherwise an owner may not be the norm.
const enoughOwned = 2

// crowd identifies a set of siblings.
type crowd struct {
	schema.GroupKind
	namespace, label, value string
	maker                   [3]string
}

// count is the size of a crowd, the number of its objects with an existing owner, and one of
// these owners.
type count struct {
	all, owned int
	owner      graph.Owner
}

func crowdsOf(o *Object) []crowd {
	var crowds []crowd
	for _, label := range siblingLabels {
		if value := o.Labels[label]; value != "" {
			c := crowd{GroupKind: groupKind(o), namespace: o.Namespace, label: label, value: value}
			for i, maker := range sameMaker {
				c.maker[i] = o.Labels[maker]
			}
			crowds = append(crowds, c)
		}
	}
	return crowds
}

// join counts o among its siblings.
func (s *Snapshot) join(o *Object) {
	if o.Deleting {
		return
	}
	for _, c := range crowdsOf(o) {
		n := s.crowds[c]
		n.all++
		if i := slices.IndexFunc(o.Owners, func(ref graph.Owner) bool { return s.fault(o, ref) == "" }); i >= 0 {
			n.owned++
			n.owner = o.Owners[i]
		}
		s.crowds[c] = n
	}
}

func noOwner(s *Snapshot, o *Object) []Finding {
	if len(o.Owners) > 0 || len(s.restorable(o)) > 0 {
		return nil
	}
	for _, c := range crowdsOf(o) {
		siblings := s.crowds[c]
		if siblings.owned < enoughOwned || 2*siblings.owned <= siblings.all {
			continue
		}
		return []Finding{{
			Message: fmt.Sprintf("no owner, but %d of %d siblings with the label %s=%s have one, such as %s",
				siblings.owned, siblings.all-1, c.label, c.value, nameOf(siblings.owner)),
			Owners: []types.UID{siblings.owner.UID},
		}}
	}
	return nil
}

// NeedsLabels returns a function that reports whether noOwner needs the labels of an object: only
// if, in its namespace, some objects of its kind have owners and others have none.
func NeedsLabels(objects []*Object) func(*Object) bool {
	type place struct {
		schema.GroupKind
		namespace string
	}
	owned, bare := map[place]bool{}, map[place]bool{}
	for _, o := range objects {
		p := place{groupKind(o), o.Namespace}
		if len(o.Owners) > 0 {
			owned[p] = true
		} else {
			bare[p] = true
		}
	}
	return func(o *Object) bool {
		p := place{groupKind(o), o.Namespace}
		return owned[p] && bare[p]
	}
}
