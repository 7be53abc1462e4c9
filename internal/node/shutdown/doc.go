// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shutdown ends the pods of a node before its machine shuts down (KEP-2000, KEP-2712): groups of pods one after
// another, by priority, each within its own time. A delay inhibitor of logind holds the shutdown until they have ended.
package shutdown
