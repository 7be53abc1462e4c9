// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods is what controllers of pods share: what makes a pod active,
// ready and available, which pods to give up first, how a pod is made from a
// template, and how many API calls to try at once.
//
// Everything but Control is a pure function of its arguments.
package pods
