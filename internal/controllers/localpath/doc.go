// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localpath provisions the volumes of the default StorageClass, local-path: a directory on a
// node's disk for each claim, or for a claim of volumeMode Block a file, which the node makes a block
// device.
//
// The provisioner follows the protocol of external provisioners: it acts on claims that the binder has
// marked with its name and for which the scheduler has chosen a node that it serves, and on volumes that
// it has provisioned and that are Released. A volume can be used only on the node of its directory;
// its node affinity tells the scheduler so.
//
// Each volume has the name pvc-<UID of the claim>, and its directory has the same name, so that every
// step can be repeated after a crash. The directory exists before the PersistentVolume, and is removed
// before it: a finalizer keeps a deleted PersistentVolume until then. A directory of a volume with policy
// Retain is never removed.
//
// If the size of a volume cannot be limited, an event on the claim says so. What the volumes have on the disk
// of a machine is in package localvolumes.
package localpath
