// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package linearizability

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Kind is what a request asks for.
type Kind string

const (
	Read Kind = "read"
	// Create writes an object that does not exist.
	Create Kind = "create"
	// Put writes an object that exists, whatever its value.
	Put Kind = "put"
	// Swap writes an object that has the expected value: an update with a resource version.
	Swap   Kind = "swap"
	Delete Kind = "delete"
)

// Outcome is what the client knows after a request.
type Outcome string

const (
	Done Outcome = "done"
	// Refused requests had no effect, because the object was not as they demand.
	Refused Outcome = "refused"
	// Unknown requests failed in a way that does not tell whether they had an effect, or will have one.
	Unknown Outcome = "unknown"
	// Unsent requests reached no server.
	Unsent Outcome = "unsent"
)

// Request is a request for one object. Each written value is another one.
type Request struct {
	Kind
	// Value is what is written.
	Value string
	// Expected is the value that a Swap demands.
	Expected string
}

// Answer is what the client got.
type Answer struct {
	Outcome
	// Value is what a Read found; empty if the object does not exist.
	Value string
}

// absent is the state of an object that does not exist. Any other state is its value.
const absent = ""

// accepts reports whether the request has an effect on an object in this state.
func (r Request) accepts(state string) bool {
	switch r.Kind {
	case Create:
		return state == absent
	case Swap:
		return state != absent && state == r.Expected
	default:
		return state != absent
	}
}

// step returns the states in which an object may be after a request that had this answer; none if it can't have had it.
func step(state string, r Request, a Answer) []string {
	if r.Kind == Read {
		if a.Outcome == Done && a.Value != state {
			return nil
		}
		return []string{state}
	}
	written := r.Value
	if r.Kind == Delete {
		written = absent
	}
	switch accepted := r.accepts(state); {
	case a.Outcome == Done && accepted:
		return []string{written}
	case a.Outcome == Refused && !accepted:
		return []string{state}
	case a.Outcome == Unknown && accepted:
		return []string{state, written}
	case a.Outcome == Unknown:
		return []string{state}
	}
	return nil
}

// model is that of one object, which does not exist at first.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{absent} },
	Step: func(state, input, output any) (next []any) {
		for _, s := range step(state.(string), input.(Request), output.(Answer)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return describe(input.(Request), output.(Answer)) },
}).ToModel()

func describe(r Request, a Answer) string {
	switch {
	case r.Kind == Read:
		return fmt.Sprintf("read %q", a.Value)
	case r.Kind == Swap:
		return fmt.Sprintf("swap %q for %q: %s", r.Expected, r.Value, a.Outcome)
	}
	return fmt.Sprintf("%s %q: %s", r.Kind, r.Value, a.Outcome)
}
