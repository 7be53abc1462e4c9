// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// resolvConf is the file that furnishResolver replaces.
const resolvConf = "/etc/resolv.conf"

// furnishResolver makes the namespaces find no name at once. The machine's DNS servers can't be reached from there: a pull from a
// registry that specs know not to exist would fail only after a minute of attempts, longer than these specs wait.
func furnishResolver() error {
	// The directory is a file system of furnish.
	file := filepath.Join(filepath.Dir(kubeletDir), "resolv.conf")
	// No DNS server listens on the machine's own address, so that its kernel refuses queries.
	if err := os.WriteFile(file, fmt.Appendf(nil, "nameserver %s\n", isolatedAddress.IP), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(resolvConf)
	if err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount(file, target, "", unix.MS_BIND, ""))
}
