// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgc deletes pods that nobody else would: too many that have ended,
// those whose node is gone or out of service, and those that were deleted
// before they ever had a node.
//
// A Reconcile looks at all pods and nodes at once. What goes and why is decided
// by a pure function (garbage.go); the controller carries it out. It runs every
// few seconds, and at once when a node goes or is declared out of service.
package podgc
