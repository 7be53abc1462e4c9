// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs pods: one worker a pod, which walks named stages.
//
// The model has three parts.
//
//   - Decide is a pure function: a pod's spec, what the runtime was last seen to
//     hold, the memory of the worker and the time as a value go in; a list of
//     actions, the earliest time to look again and whether the pod is over come
//     out. It has no goroutine, no clock and no I/O, so that a test can kill it
//     between any two actions.
//   - The Worker of a pod is a loop around it: observe, decide, act, write status.
//     Whatever wakes it (a new spec, an exited process, a probe's result, a
//     finished action, a timer) leads to the same loop.
//   - The stages carry actions out: volumes, sandbox, containers, hooks,
//     probes, termination. Each has a start and a stop. What needs a subsystem
//     (volumes, images, probes ...) is behind a small interface in interfaces.go.
//
// A pod's spec, here, has the resources which the node allocated; Resize is what the node says
// to others the API asks for. Decide brings running containers and the pod's cgroup to
// the size that is allocated.
//
// The runtime is the only memory that matters: containers are found by their
// labels, so that a new agent process takes them over where the old one left them.
package pod
