// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulated runs nodes without containers, as kwok does.
//
// A simulated node runs the real agent's state machine on an in-memory model of a container runtime.
// pod.Decide, the pure function that the workers of the real agent call, decides what happens to a pod.
// Its actions (create a sandbox, start a container, stop it) are carried out at once, on a value.
// Therefore phases, conditions, restarts, backoff, sidecars, deadlines and termination are the same as
// on real nodes.
//
// A pod is simulated until no action is left, and only then is its status written: one write from Pending
// to Running and Ready. While a later change is known (a restart, an exit), the model of the pod is kept
// in memory. A settled pod needs only its address. When something happens to it, its model is rebuilt
// from its status, which is also how a new process takes over pods.
//
// The model adds to the state machine:
//
//   - images are present, volumes mount, hooks and probes succeed at once (probes after their
//     initialDelaySeconds);
//   - init containers exit with code 0 at once; all other containers run until they get SIGTERM, and
//     then exit with code 143;
//   - only warnings are recorded as events, because the four normal events of a real pod would cost
//     more than the simulated pod.
//
// Annotations on the pod change what its containers do; see ExitAfter, ExitCode and StopAfter. Others say
// what they use, so that autoscaling can be tried without load; see CPU and Memory.
package simulated
