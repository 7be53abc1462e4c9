// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtime is the agent's view of a CRI v1 container runtime.
//
// It converts CRI's responses into plain values (Pod, Sandbox, Container), requests details only of
// what may have changed, makes the calls that change pods, and reports other changes: from the
// runtime's event stream or, if the runtime has none, from pidfds of the processes. This is the PLEG
// of the kubelet. The package stores nothing
// that the runtime does not have. It lists only what has the owner label of this node, so that
// other users of the same runtime are not affected.
package runtime
