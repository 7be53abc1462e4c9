// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is the cluster as the scheduler sees it: nodes, with what they
// have and what is taken, and the pods on them, each parsed once.
//
// A [Cluster] belongs to one goroutine, which applies every change to it and makes
// every decision from it. So there is no lock, no snapshot and no copy: a decision
// reads the state itself, and the pod it places is added to the node at once, long
// before the API has heard of it. Only "what if" questions copy, and then one node.
//
// A [Pod] never changes once it is made, so it may be made anywhere.
package model
