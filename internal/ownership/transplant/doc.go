// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transplant says what of an object can live on in another cluster, or again in its
// own after it was deleted: it comes to have another UID, and whatever was tied to the old
// one has to be tied anew, or let go.
package transplant
