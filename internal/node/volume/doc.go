// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume makes the volumes of a node's pods exist: emptyDir, configMap,
// secret, downwardAPI, projected and hostPath.
//
// Each kind of volume is one file and answers three questions: where it is, whether
// containers may write to it, and how to make it present. The kinds whose content
// comes from the API share one shape (content.go): collect what the files hold now,
// then let the atomic writer (atomic.go) put it on disk. Preparing and refreshing
// them is the same act, done again whenever an object they were made of changes or
// a token ages.
//
// Teardown needs no kind: everything of a pod is below its directory, and what is
// mounted there is found in the kernel's mount table. So it also cleans up after an
// agent that died at any point, and for pods nobody remembers.
//
// On disk, as with upstream's kubelet:
//
//	pods/<uid>/volumes/kubernetes.io~<kind>/<volume>/
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>
package volume
