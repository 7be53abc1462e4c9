// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unserved declares what the API accepts and nothing in the cluster acts on. Each Fact has one kind, one
// field and one text. Admission returns the text to the creator as a Warning; a controller records it as an event on
// the object, unless another part records an event of its own, such as the node for a volume that it cannot mount.
//
// Find is on the path of each creation of a pod. For an object that no Fact is about, it neither allocates nor reads
// the cluster.
package unserved
