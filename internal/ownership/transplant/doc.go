// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transplant prepares objects to be created again: in another cluster, or in their own
// after a deletion. Such an object gets a new UID. The package decides which of its fields remain
// valid, and replaces references to old UIDs.
package transplant
