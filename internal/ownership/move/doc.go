// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move takes a graph of objects to another cluster: the objects that are named,
// and all that they own. It is a client of two API servers, of which neither has to be
// Kindred, and needs nothing in them.
//
// # Phases
//
//  1. Plan. The metadata of every kind is listed at the source, and owner references are
//     followed by UID from the roots down ([Assemble]). What cannot be moved safely is a
//     problem; a plan with problems is not carried out.
//  2. Copy. Owners before dependents. Each object is created in a form that its controller
//     leaves alone, where its kind has one (hold.go), with every UID of the graph replaced by
//     the new one (remap.go), and with a mark that names the move and the object it was made
//     from (marks.go). Then the source is read again, until a reading finds nothing that is not copied.
//  3. Verify. Each copy is read back and compared with what was sent. Then a ConfigMap at the
//     target, the anchor (anchor.go), says so. Nothing at the source has been written until here.
//  4. Remove. Owners first, without their dependents (orphan), so that no controller makes
//     anew what is being removed, and no collector removes what was not copied. Each deletion
//     names UID and resourceVersion of a state whose content is the copied one.
//  5. Release. Holds and marks are taken off at the target, and last the anchor.
//
// # Interruption
//
// All that is remembered is in marks and anchor. Without an anchor, the next run copies again
// and finds what is there. With one, and a root that the source has no more, the marks say what
// is to be removed and released.
package move
