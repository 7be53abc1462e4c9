// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kindred-project/kindred/internal/durable"
)

// shared are the files that all servers of a cluster have: its authorities, and the key of service account tokens. Keys come before
// the certificates, as openAuthority requires.
var shared = []string{"front-proxy-ca.key", "front-proxy-ca.crt", "sa.key", "ca.key", "ca.crt"}

// sharedByMembers are the files that servers have as well whose etcd is a member of a cluster.
var sharedByMembers = []string{etcdAuthority + ".key", etcdAuthority + ".crt"}

// Exists reports whether a directory has the cluster's authority.
func Exists(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Shared returns what another server of the cluster needs of a directory: files by name.
func Shared(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range append(slices.Clone(shared), sharedByMembers...) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && slices.Contains(sharedByMembers, name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	return files, nil
}

// Adopt writes what Shared returned on another server to a directory without an authority.
func Adopt(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create certificate directory: %w", err)
	}
	for name := range files {
		if !slices.Contains(shared, name) && !slices.Contains(sharedByMembers, name) {
			return fmt.Errorf("%q is not a file that servers share", name)
		}
	}
	for _, name := range append(slices.Clone(sharedByMembers), shared...) { // ca.crt tells that all are there: Exists
		content, ok := files[name]
		switch {
		case !ok && slices.Contains(sharedByMembers, name):
			continue
		case !ok:
			return fmt.Errorf("the keys of the cluster have no %s", name)
		}
		if err := durable.WriteFile(filepath.Join(dir, name), content, private); err != nil {
			return err
		}
	}
	return nil
}
