// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kindredtest runs a Kubernetes cluster for a Go test: the API with
// controllers, garbage collector, scheduler and simulated nodes, where pods get
// Running and Ready without containers.
//
//	func TestDeployment(t *testing.T) {
//		cluster := kindredtest.Start(t)
//		client := kubernetes.NewForConfigOrDie(cluster.Config())
//		// create a Deployment: its pods become ready;
//		// delete an owner: what it owned is collected.
//	}
//
// Each Start is a cluster of its own, in a process of its own on a free port and
// a temporary directory, so tests may run in parallel. It ends with the test;
// if the test process dies, the cluster dies with it. If the test failed, what
// the cluster printed and logged is added to the test's log.
//
// The kindred binary is taken from, in this order, the option [Binary], the
// environment variable KINDRED_BIN, bin/kindred of a Kindred repository around
// the test's directory, and PATH. This module depends on client-go alone:
// what Kindred itself is built from never gets into the go.mod of its users.
package kindredtest
