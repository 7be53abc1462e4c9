// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kindredtest runs a Kubernetes cluster for a Go test: API server, controllers, garbage
// collector, scheduler and simulated nodes, on which pods become Running and Ready without
// containers.
//
//	func TestDeployment(t *testing.T) {
//		cluster := kindredtest.Start(t)
//		client := kubernetes.NewForConfigOrDie(cluster.Config())
//		// Create a Deployment: its pods become ready.
//		// Delete an owner: its dependents are deleted.
//	}
//
// Each Start runs a new cluster in its own process, on a free port and in a temporary
// directory, so tests may run in parallel. The cluster is stopped at the end of the test; if the
// test process dies, the cluster dies with it (on Linux). If the test fails, the cluster's output
// is added to the test's log.
//
// The kindred binary is searched for in this order: the option [Binary], the environment
// variable KINDRED_BIN, bin/kindred of the Kindred repository that contains the test, and PATH.
// This module depends only on client-go: Kindred's own dependencies never get into the go.mod of
// its users.
package kindredtest
