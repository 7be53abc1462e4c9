// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localvolumes keeps the directories of local volumes on the disk of a machine, or the files of those that are block devices.
// The provisioner of the class local-path decides which exist; it reaches those of other machines by the API server, which passes
// requests on to the agent there.
//
// The size of a directory is limited by a project quota, if the file system has them. The size of a file is exact.
package localvolumes
