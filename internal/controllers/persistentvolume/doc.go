// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package persistentvolume contains the controllers of PersistentVolumes and
// PersistentVolumeClaims.
//
// The binder binds each claim to a volume. A claim gets, in this order: the volume that it names,
// a volume that names it, the smallest available volume that fits, a new volume from the provisioner
// of its StorageClass. If the class has the binding mode WaitForFirstConsumer, the scheduler chooses
// the volume, or the node that a new volume must be accessible from.
//
// A binding takes four writes: the volume's claimRef, its phase, the claim's volumeName, its phase. The
// volume's claimRef decides: two claims may be matched with one volume, but only one write of its
// claimRef succeeds. Each later step follows from the state before it, so that the binder continues
// after a crash between any two of them.
//
// The expander tells users that resizing is the job of another component. The ephemeral controller
// creates the claims of generic ephemeral volumes (KEP-1698).
package persistentvolume
