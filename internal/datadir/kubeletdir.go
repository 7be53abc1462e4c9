// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LinkNode makes a link to the node agent's directory. Manifests of CSI drivers name a path of the kubelet,
// usually /var/lib/kubelet, on the node and in their containers; an agent that uses the link as its root
// gives drivers paths that exist in both. It fails if something else is there, such as a kubelet's directory.
func (l Layout) LinkNode(link string) error {
	if err := os.MkdirAll(l.Node(), 0o755); err != nil {
		return l.wrap(err)
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	err := os.Symlink(l.Node(), link)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if target, err := os.Readlink(link); err == nil && resolve(target) == resolve(l.Node()) {
		return nil
	}
	return fmt.Errorf("%s exists and is no link to %s: another node agent may use it. Remove it, or give another --kubelet-dir", link, l.Node())
}

// UnlinkNode removes a link to the node agent's directory, if it is one.
func (l Layout) UnlinkNode(link string) error {
	target, err := os.Readlink(link)
	if err != nil || resolve(target) != resolve(l.Node()) {
		return nil // it belongs to another object, or is gone
	}
	return os.Remove(link)
}
