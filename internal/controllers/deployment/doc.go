// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment rolls a Deployment's pod template out through ReplicaSets.
//
// A Deployment never touches pods. It has one ReplicaSet for each template it
// ever had: the newest carries the template of now, the old ones are its
// history. A Reconcile decides how large each of them should be and writes
// that; ReplicaSets report back through their status, which wakes it again, and
// so a rollout advances step by step with nothing kept in memory between steps.
//
//	read       ReplicaSets by owner, claimed; which is newest   (package owned, template.go)
//	decide     sizes: a step of a rollout, or of scaling        (plan.go, pure)
//	act        create the newest, resize, clean up history      (rollout.go, revision.go)
//	report     counts and conditions                            (status.go, pure)
//
// Status, conditions and the revision annotation are collected on a copy of the
// Deployment during the pass and written once, at its end.
package deployment
