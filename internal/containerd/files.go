// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"bytes"
	"crypto/sha256"
	"net"
	"os"
)

// writeIfChanged leaves a file alone whose content is right: containerd watches
// its network configuration.
func writeIfChanged(path string, content []byte) error {
	if same, err := hasContent(path, content); err != nil || same {
		return err
	}
	return writeFile(path, content)
}

// writeFile replaces a file as a whole, so that nobody reads half of it.
func writeFile(path string, content []byte) error {
	// The name must not end in .conflist or .json, which would be read.
	next := path + ".new"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func hasContent(path string, content []byte) (bool, error) {
	present, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return bytes.Equal(present, content), err
}

// hardwareAddress derives a locally administered unicast address (IEEE 802: bit 1
// of the first byte set, bit 0 clear) from an interface's name.
func hardwareAddress(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(name))
	return append(net.HardwareAddr{0x02}, sum[:5]...)
}
