// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package criconfig turns a pod's spec into the configuration that CRI expects: of its sandbox
// ([Host.Sandbox]) and of each run of a container ([Host.Container]), with security context, DNS,
// host name, /etc/hosts and resources.
//
// All of it follows from the spec and from the facts of the node in [Host]. Only DNS and
// /etc/hosts read files of the node, and only WriteHosts writes one. The environment and the
// mounts of a container are the caller's.
package criconfig
