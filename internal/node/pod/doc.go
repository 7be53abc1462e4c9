// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs pods: one worker for each pod, which walks the pod through named stages.
//
// The model has three parts.
//
//   - Decide is a pure function. From the pod's spec, its state in the runtime, the worker's memory
//     and the time it computes the pod's status, a list of actions and when to decide again. It has
//     no goroutine, no clock and no I/O, so that a test can kill the agent between any two actions.
//   - The Worker of a pod is a loop around Decide: observe, decide, act, write the status. A new
//     spec, an exited process, a probe's result, a finished action or a timer starts the next
//     round. [Output] documents in which order a decision takes effect.
//   - The stages carry out the actions. stages.go lists them in the order of a pod's life. Each is
//     a file (stage_*.go) that states what the stage assumes and what it leaves. The other parts
//     of the node (volumes, images, probes ...) are small interfaces, in interfaces.go.
//
// The spec of a pod has, in this package, the resources that the node has allocated. [Resize] is the
// node's decision about a change of them in the API. Decide brings running containers and the pod's cgroup
// to their allocated size.
//
// The runtime is the source of truth: containers are found by their labels, so that a new agent
// takes over the containers of the last one.
package pod
