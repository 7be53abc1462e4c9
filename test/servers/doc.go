// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers runs Kindred and upstream's servers side by side, to compare their responses
// (test/parity), their speed (test/bench), moves of objects between them (test/scenarios) and the
// results of upstream's tests (test/conformance). The first two need upstream's store and API
// server alone ([Upstream]), moves also need the controllers ([UpstreamControlPlane]), and
// conformance needs a whole cluster with a node ([UpstreamCluster]). test/attack needs a Kindred
// that it can kill.
//
// Upstream's programs are built from the module in upstream/, which is separate, so that the
// product cannot depend on k8s.io/kubernetes.
package servers
