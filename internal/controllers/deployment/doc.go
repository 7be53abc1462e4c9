// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment rolls out a Deployment's pod template through ReplicaSets.
//
// A Deployment never touches pods. It has one ReplicaSet for each template that it had:
// the newest has the current template, the old ones are its history. A Reconcile decides
// and writes the size of each ReplicaSet. Their status wakes the controller again, so that
// a rollout advances step by step, with no state in memory between the steps.
//
//	read       ReplicaSets by owner, claimed; which is newest   (package owned, template.go)
//	decide     sizes: a step of a rollout, or of scaling        (plan.go, pure)
//	act        create the newest, resize, clean up history      (rollout.go, revision.go)
//	report     counts and conditions                            (status.go, pure)
//
// A Reconcile collects status, conditions and the revision annotation on a copy of the
// Deployment, and writes them once, at its end.
package deployment
