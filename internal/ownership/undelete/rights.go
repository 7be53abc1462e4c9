// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"slices"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// namedLimit is the maximum number of objects for which access is checked by name. Each check may
// be a request to a webhook.
const namedLimit = 300

// rights checks and caches what the caller may do.
type rights struct {
	*undeletion
	known map[access]error
	named map[*Item]bool
	// overrun is true if more objects than namedLimit need a check by name.
	overrun bool
}

// access is the use of a verb on all objects of a resource in a namespace.
type access struct {
	verb        string
	resource    graph.Resource
	subresource string
	namespace   string
}

// denied returns why the caller may not use a verb on all objects of an item's resource and
// namespace, or nil.
func (r *rights) denied(ctx context.Context, verb string, item *Item, subresource string) error {
	a := access{verb, item.Resource, subresource, item.Namespace()}
	if _, known := r.known[a]; !known {
		r.known[a] = r.May(ctx, verb, item.Resource, subresource, item.Namespace(), "")
	}
	return r.known[a]
}

// allowedByName reports whether the caller may use a verb on an item by its name, as RBAC's
// resourceNames allow. It does not apply to create, which is authorized without a name
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources).
func (r *rights) allowedByName(ctx context.Context, verb string, item *Item, subresource string) bool {
	if verb == "create" {
		return false
	}
	if !r.named[item] && len(r.named) == namedLimit {
		r.overrun = true
		return false
	}
	r.named[item] = true
	return r.May(ctx, verb, item.Resource, subresource, item.Namespace(), item.Name()) == nil
}

// allowed reports whether the caller may use a verb on an item.
func (r *rights) allowed(ctx context.Context, verb string, item *Item, subresource string) bool {
	return r.denied(ctx, verb, item, subresource) == nil || r.allowedByName(ctx, verb, item, subresource)
}

// checkAccess reports what the caller may not do. For objects that the caller may not read it
// reports only their number.
func (u *undeletion) checkAccess(ctx context.Context) {
	r := &rights{undeletion: u, known: map[access]error{}, named: map[*Item]bool{}}
	hidden := 0
	var refusals []string
	for _, item := range u.items {
		if r.overrun {
			break // The undeletion is refused in any case.
		}
		if !willBeWritten(item) {
			continue
		}
		if !r.allowed(ctx, "get", item, "") {
			hidden++
			continue
		}
		for _, verb := range verbsFor(item) {
			err := r.denied(ctx, verb, item, "")
			if err == nil {
				continue
			}
			reported := slices.Contains(refusals, err.Error())
			if reported && verb != "create" || r.allowedByName(ctx, verb, item, "") {
				continue // Do not check further objects by name: the undeletion is refused anyway.
			}
			if isPending(item) {
				item.Outcome, item.Reason = ownership.UndeletionDenied, "you may not "+verb+" it"
			}
			if !reported {
				refusals = append(refusals, err.Error())
			}
		}
		if hasEnded(item.then) && item.Outcome == ownership.UndeletionPending && !r.allowed(ctx, "update", item, "status") {
			item.Outcome, item.Reason = ownership.UndeletionLeft, "it had terminated and would run again, because you may not update its status"
		}
	}
	if r.overrun {
		u.problem("you may not write all objects of a kind, and there are more than %d to check by name: ask a user who may write all of them", namedLimit)
		return
	}
	u.report.Problems = append(u.report.Problems, refusals...)
	if hidden > 0 {
		u.problem("the objects to restore include some that you may not read (%d): ask a user who may read them", hidden)
	}
}

func verbsFor(item *Item) []string {
	if item.Outcome == ownership.UndeletionAdopted {
		return []string{"update"}
	}
	return []string{"create", "update", "patch"}
}
