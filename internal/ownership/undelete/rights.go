// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package undelete

import (
	"context"
	"slices"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// namedLimit is of how many objects it is asked what the caller may do with each: the answer
// may have to come from a webhook.
const namedLimit = 300

// rights are what the caller may do, as far as it was asked for.
type rights struct {
	*undeletion
	known map[access]error
	named map[*Item]bool
	// overrun is whether there were more objects to ask for than namedLimit.
	overrun bool
}

// access is the use of a verb on all objects of a resource in a namespace.
type access struct {
	verb        string
	resource    graph.Resource
	subresource string
	namespace   string
}

// to is why the caller may not use a verb on any object like an item.
func (r *rights) to(ctx context.Context, verb string, item *Item, subresource string) error {
	a := access{verb, item.Resource, subresource, item.Namespace()}
	if _, asked := r.known[a]; !asked {
		r.known[a] = r.May(ctx, verb, item.Resource, subresource, item.Namespace(), "")
	}
	return r.known[a]
}

// toNamed is whether the caller may use a verb on an item by its name: RBAC's resourceNames
// limit rights to some objects. What is created has no name when it is authorized
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources).
func (r *rights) toNamed(ctx context.Context, verb string, item *Item, subresource string) bool {
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

// may is whether the caller may use a verb on an item.
func (r *rights) may(ctx context.Context, verb string, item *Item, subresource string) bool {
	return r.to(ctx, verb, item, subresource) == nil || r.toNamed(ctx, verb, item, subresource)
}

// checkAccess looks for what the caller may not do. Of objects that the caller may not read
// only the number is told.
func (u *undeletion) checkAccess(ctx context.Context) {
	r := &rights{undeletion: u, known: map[access]error{}, named: map[*Item]bool{}}
	hidden := 0
	var refusals []string
	for _, item := range u.items {
		if r.overrun {
			break // It is refused, whatever else there is.
		}
		if !isWritten(item) {
			continue
		}
		if !r.may(ctx, "get", item, "") {
			hidden++
			continue
		}
		for _, verb := range verbsFor(item) {
			err := r.to(ctx, verb, item, "")
			if err == nil {
				continue
			}
			told := slices.Contains(refusals, err.Error())
			if told && verb != "create" || r.toNamed(ctx, verb, item, "") {
				continue // Of some objects it is not known, as it takes a question for each.
			}
			if isPending(item) {
				item.Outcome, item.Reason = ownership.UndeletionDenied, "you may not "+verb+" it"
			}
			if !told {
				refusals = append(refusals, err.Error())
			}
		}
		if hasEnded(item.then) && item.Outcome == ownership.UndeletionPending && !r.may(ctx, "update", item, "status") {
			item.Outcome, item.Reason = ownership.UndeletionLeft, "it had ended, and would run again: you may not write its status"
		}
	}
	if r.overrun {
		u.problem("your rights are not to all objects of a kind, and of more than %d it would have to be asked for each by its name: it has to be undone by somebody who may write all", namedLimit)
		return
	}
	u.report.Problems = append(u.report.Problems, refusals...)
	if hidden > 0 {
		u.problem("what it took along has objects that you may not read (%d): it has to be undone by somebody who may", hidden)
	}
}

func verbsFor(item *Item) []string {
	if item.Outcome == ownership.UndeletionAdopted {
		return []string{"update"}
	}
	return []string{"create", "update", "patch"}
}
