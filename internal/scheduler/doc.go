// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler assigns pods to nodes. It behaves as kube-scheduler with its default profile:
// the same rules, conditions, events and texts.
//
// It has two halves.
//
// The machine (machine.go, cycle.go, preempt.go) decides. It owns the state of the cluster
// ([model]), the pending pods ([queue]) and the rules ([plugin]). It has no goroutines, no locks
// and no I/O. A pod that it places is on its node for every later decision, so it needs no
// snapshots and no cache of assumed pods.
//
// The driver (scheduler.go, watch.go, effects.go, reservations.go) connects it to the API. One
// goroutine, the loop of [Scheduler.Run], applies the informers' changes to the machine and passes
// on its decisions. Other goroutines write bindings, status and events, in order for each pod. An
// error there is another change for the machine. While many pods are scheduled, the events of those
// that got their nodes wait (eventsink.go).
//
// The pending pods of a PodGroup are placed in one step (gang.go, gang_cycle.go, gang_trial.go): if too
// few of them fit, all are taken back.
//
// Some pods cannot be bound at once: their claims need volumes or devices first. Their decision
// contains a reservation, which counts for every later decision, is written to the API, and must
// take effect before the machine decides to bind the pod (reserve.go).
//
// So every decision is based on all that is known, no change is missed between a decision and its
// effects, and the logic is tested without a server.
package scheduler
