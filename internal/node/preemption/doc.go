// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preemption decides which pods a node evicts in order to admit a critical pod, such as a static pod, that requests
// more than is free. It decides as the kubelet does: first it takes as few guaranteed pods as possible, and the
// smallest, then burstable ones for what is still short, then those of best effort.
package preemption
