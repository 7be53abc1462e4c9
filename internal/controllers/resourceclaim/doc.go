// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaim looks after the ResourceClaims of pods (KEP-4381) and of PodGroups (KEP-5729).
// The controllers act under one name:
//
//   - generator: creates the claims that pods want from ResourceClaimTemplates, records their names
//     in the status of the pods, and reserves allocated claims for pods that did not pass through
//     the scheduler;
//   - groupGenerator: creates the claims that PodGroups want, and records their names in the status
//     of the PodGroups. If a claim of a pod is one of its PodGroup, generator records it for the pod;
//   - releaser: removes pods and PodGroups that do not need a claim any more from its
//     status.reservedFor. With the last of them the claim loses its allocation and its protection
//     from deletion, and if it was created for a pod, it is deleted.
//
// The scheduler allocates the claims. Drivers and the node agent make their devices usable.
package resourceclaim
