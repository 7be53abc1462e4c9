// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler gives pods their nodes. To its users it is kube-scheduler with
// its default profile: the same rules, conditions, events and texts.
//
// It has two halves.
//
// The machine (machine.go, cycle.go, preempt.go) decides. It owns the state of the
// cluster ([model]), the waiting pods ([queue]) and the rules ([plugin]); it is told
// of changes and asked for the next decision. It has no goroutines, no locks and no
// I/O. A pod it places is on its node from that moment for every decision that
// follows; there is no snapshot to take and nothing to copy.
//
// The driver (scheduler.go, watch.go, effects.go) connects it to the API. One
// goroutine, the loop of [Scheduler.Run], feeds the machine what the informers saw
// and hands its decisions on; binding, status and events are written by others at
// the same time, in order for each pod. What goes wrong there comes back to the
// machine as one more change.
//
// So a decision is always made on everything known so far, no change can be missed
// between a decision and its consequences, and the whole of the logic is tested
// without a clock or a server.
package scheduler
