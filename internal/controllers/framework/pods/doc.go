// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods holds what controllers of pods share: when a pod is active, ready and
// available, which pods to delete first, how to create a pod from a template, and how to
// batch API calls.
//
// All functions but those of Control are pure.
package pods
