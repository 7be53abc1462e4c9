// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers runs Kindred and upstream's servers side by side, for those who compare
// them: test/parity what they answer, test/bench how fast, test/scenarios whether objects can
// move between them, test/conformance what upstream's own tests say about them. The first two
// need upstream's store and API server alone ([Upstream]), moves the controllers as well
// ([UpstreamControlPlane]), the last a whole cluster with a node ([UpstreamCluster]). test/attack
// needs no server of upstream's, but a Kindred that it can kill.
// Upstream's programs are built from the module in upstream/, which is apart: nothing of the
// product can come to see k8s.io/kubernetes through it.
package servers
