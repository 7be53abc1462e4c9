// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package userns gives each pod with its own user namespace (hostUsers: false, KEP-127) a range of the host's user and group
// IDs. No two pods of the node share an ID, so that a process that escapes from its pod has rights neither on the host nor on
// files of other pods.
//
// A range is stored in the pod's directory before the runtime sees it, in upstream's format, and is free again once the
// pod's volumes are torn down. A new agent reads the ranges from there.
package userns
