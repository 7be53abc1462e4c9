// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm tests what only a whole machine shows: it boots Debian 12 in QEMU, with systemd, cgroup version 2, AppArmor, a
// file system with project quotas and swap, installs the binary there as a service, and looks at it over SSH. "make vm" runs
// it. Nothing is compiled in the machine, and it needs no KVM, so that it is slow: half an hour.
package vm
