// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package linearizability records what clients of several servers wrote and read, and checks that one order of these requests explains
// all answers: that of a single copy of each object, in which each request takes effect at some moment between its call and its return
// (Herlihy and Wing, 1990). The check is porcupine's; the model of an object is in model.go.
package linearizability
