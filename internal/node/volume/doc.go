// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume prepares the volumes of a node's pods: emptyDir, configMap, secret, downwardAPI,
// projected, image and hostPath.
//
// Each kind of volume is one file, which knows the path of the volume, whether containers may write
// to it, and how to prepare it. Kinds whose content comes from the API share one implementation
// (content.go): collect the current content, then have the atomic writer (atomic.go) write it to disk.
// A refresh prepares them again. It runs when one of their objects changes or when a token must be
// renewed.
//
// Teardown does not depend on the kind: all files of a pod are below its directory, and the kernel's
// mount table has the mounts. Therefore it also cleans up after an agent that ended at any point, and
// for pods that the API no longer has.
//
// The layout is that of upstream's kubelet:
//
//	pods/<uid>/volumes/kubernetes.io~<kind>/<volume>/
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>
package volume
