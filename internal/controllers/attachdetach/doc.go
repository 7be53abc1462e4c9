// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attachdetach attaches the volumes of CSI drivers to the nodes whose pods use them, and detaches
// them when no pod does.
//
// An attachment is a VolumeAttachment, which the external-attacher of the driver carries out. A node
// mounts a volume when its Node lists it in status.volumesAttached, and lists the volumes that it
// uses in status.volumesInUse. So that no volume is in use on a node that it is not attached to, a
// volume is detached only when the node does not use it, and is removed from volumesAttached first. A
// volume without an access mode for many nodes is attached to one at a time.
//
// A node that is lost cannot say that it does not use a volume. Its volumes are detached after 6 minutes, or
// at once if it has the taint node.kubernetes.io/out-of-service, with which an administrator
// vouches that it is shut down (KEP-2268).
//
// One worker takes all decisions, each for one volume of a driver, whatever PersistentVolumes name it. Each kind
// has a cache of its own, and any of them may be stale. A stale cache delays a step but does not make it unsafe:
// an attachment counts from before its creation, by live reads until the cache shows it, and the decision to detach
// is taken again on the live Node.
package attachdetach
