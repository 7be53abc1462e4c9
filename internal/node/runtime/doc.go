// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtime is the agent's view of a CRI v1 container runtime.
//
// It turns the runtime's answers into plain values (Pod, Sandbox, Container),
// asks only for what can have changed, and says when something did: from the
// runtime's own event stream where it has one, else from the processes
// themselves, through pidfds. It keeps nothing that the runtime does not hold.
// Everything it lists carries the owner label of this node, so that
// other users of the same runtime are never touched.
package runtime
