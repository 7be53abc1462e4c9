// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction keeps a node from running out of memory, disk space and process IDs: it evicts pods that use more
// than their limits of local storage, and evicts pods one by one while a signal such as memory.available is below a
// threshold.
//
// The decisions are pure functions. [Parse] reads the thresholds of a KubeletConfiguration. [State.Step] tells from a
// new observation which node conditions hold and which thresholds must be acted upon: it applies grace periods,
// minimum reclaims and the transition period. [Rank] orders pods for eviction, [OverLimit] finds pods over a limit of
// their own, and messages are made by [pressureMessage]. [Manager] is the driver: it observes, steps, reclaims and
// evicts, with a clock.
//
// Reasons, messages and annotations are upstream's
// (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
package eviction
