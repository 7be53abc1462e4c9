// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kindred-project/kindred/internal/scheduler/model"
	"github.com/kindred-project/kindred/internal/scheduler/plugin"
)

// diagnosis is why a pod could not be placed. Its text is an interface: "kubectl describe pod"
// shows it, and autoscalers parse it.
type diagnosis struct {
	nodes int
	// global is a reason that applies to no particular node.
	global string
	// reasons counts the nodes for each reason.
	reasons map[string]int
	// filters names the filters that rejected a node, in alphabetical order.
	filters []string
	// resolvable are the nodes on which preemption might help.
	resolvable []*model.Node
	// preemption is the result of the preemption attempt.
	preemption string
	// failure is an error of a filter, which ended the attempt.
	failure error
}

// narrowed records that a filter excluded nodes without checking them.
func (d *diagnosis) narrowed(filter string) {
	if at, found := slices.BinarySearch(d.filters, filter); !found {
		d.filters = slices.Insert(d.filters, at, filter)
	}
}

// rejectAll records that a filter rejects the pod on all nodes.
func (d *diagnosis) rejectAll(filter string, r *plugin.Rejection) {
	d.narrowed(filter)
	d.global = strings.Join(r.Reasons, ", ")
}

func (d *diagnosis) reject(filter string, node *model.Node, r *plugin.Rejection) {
	if r.Failure != nil {
		d.failure = fmt.Errorf("running %q filter plugin: %w", filter, r.Failure)
	}
	d.narrowed(filter)
	for _, reason := range r.Reasons {
		d.count(reason, 1)
	}
	if !r.Unresolvable {
		d.resolvable = append(d.resolvable, node)
	}
}

func (d *diagnosis) count(reason string, nodes int) {
	if nodes == 0 {
		return
	}
	if d.reasons == nil {
		d.reasons = map[string]int{}
	}
	d.reasons[reason] += nodes
}

// String returns kube-scheduler's text: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s)
// were unschedulable. preemption: ...". The reasons are sorted as text, including their numbers.
func (d *diagnosis) String() string {
	text := fmt.Sprintf("0/%d nodes are available:", d.nodes)
	if d.global != "" {
		text += " " + d.global + "."
	} else if len(d.reasons) > 0 {
		var reasons []string
		for reason, n := range d.reasons {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
		}
		slices.Sort(reasons)
		text += " " + strings.Join(reasons, ", ") + "."
	}
	if d.preemption != "" {
		text += " " + d.preemption
	}
	return text
}
