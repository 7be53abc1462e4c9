// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra has the node's drivers prepare the devices of its pods' ResourceClaims (dynamic resource
// allocation, KEP-4381), and removes what a driver published when it is gone.
//
// The scheduler allocates a claim and reserves it for pods. Before a pod's sandbox is created, each driver
// with a device in one of its claims prepares the claim (NodePrepareResources) and returns CDI devices, which
// the containers get that use the claim. After the last of a claim's pods on the node has stopped, and
// before the API shows that, the drivers unprepare the claim (NodeUnprepareResources).
//
// A claim's record on disk is written before a driver is asked for anything, and names the pods that the
// claim was prepared for. It is all that Unprepare needs: that works without the API, and after a SIGKILL at
// any point. A new process has a claim prepared again when another pod starts to use it, because it does not
// know whether the last call succeeded; drivers must accept that.
//
// A claim is changed by one caller at a time (locks). Readers see its last complete state.
package dra
