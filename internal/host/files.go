// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/internal/durable"
)

// identityFiles are the files that tell a machine who it is.
func identityFiles(m Machine) ([]File, error) {
	id := make([]byte, 16)
	rand.Read(id)
	resolvers, err := resolvConf("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
	if err != nil {
		return nil, err
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", m.Address.Addr(), m.Name)
	return []File{
		{Path: "/etc/machine-id", Mode: 0o444, Content: []byte(hex.EncodeToString(id) + "\n")},
		{Path: "/etc/hostname", Mode: 0o644, Content: []byte(m.Name + "\n")},
		{Path: "/etc/hosts", Mode: 0o644, Content: []byte(hosts)},
		{Path: "/etc/resolv.conf", Mode: 0o644, Content: resolvers},
	}, nil
}

// resolvConf returns the host's resolvers: those of the first file that names one which a machine reaches. A resolver on the host's loopback,
// as systemd-resolved has it, is not; that names its own in another file.
func resolvConf(files ...string) ([]byte, error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if lines, reached := withoutLoopback(string(text)); reached {
			return []byte(lines), nil
		}
	}
	return []byte("# The host has no resolver that a machine reaches.\n"), nil
}

// withoutLoopback removes the resolvers on loopback. It reports whether one is left.
func withoutLoopback(text string) (lines string, left bool) {
	var out strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "nameserver" {
			address, err := netip.ParseAddr(fields[1])
			if err != nil || address.IsLoopback() {
				continue
			}
			left = true
		}
		out.WriteString(line)
	}
	return out.String(), left
}

// sameContent reports whether a file exists and has the content of another one.
func sameContent(path, as string) (bool, error) {
	a, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(as)
	return bytes.Equal(a, b), err
}

// copyFile replaces a program by a copy of another one.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return durable.Write(to, 0o755, func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	})
}
