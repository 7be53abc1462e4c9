// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated runs nodes that cost no container.
//
// A simulated node is the real agent's state machine on an imagined runtime. What
// happens next to a pod is decided by pod.Decide, the same pure function a worker of the
// real agent asks; what it wants done (make a sandbox, start a container, stop it)
// is done at once, in a value. So phases, conditions, restarts, back-off, sidecars,
// deadlines and termination are the real ones, because there are no others.
//
// A pod is walked until it has nothing left to do now, and only then is its
// status written: one write from Pending to Running and Ready. While time still has
// something in store for it (a restart, an exit) its imagined runtime is kept in memory;
// a settled pod costs nothing but its address. Its runtime is imagined anew from its
// status when something happens, which is also how a new process takes pods over.
//
// What is imagined beyond the state machine:
//
//   - images are present, volumes mount, hooks and probes succeed at once (probes
//     after their initialDelaySeconds);
//   - init containers end with code 0 at once, all other containers run for ever
//     and end with code 143 when they get TERM;
//   - events are told of what goes wrong, not of what goes well: a real node's four
//     events a pod would cost more than the pod.
//
// Annotations on the pod change what its containers do; see ExitAfter and its kin.
package simulated
