// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localvolumes

import (
	"errors"
	"path/filepath"

	"github.com/kindred-project/kindred/internal/projectquota"
)

// limit limits the size of a volume's directory, which is new and empty, or was when this was first done. It
// reports whether the file system can do that.
func (d Directories) limit(name string, size int64) (limited bool, err error) {
	p, err := projectquota.Open(filepath.Join(d.Root, name))
	if p == nil || err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return true, p.Claim(size)
}

// raise changes the limit of a volume's directory, if it has one.
func raise(v Volume) (err error) {
	p, err := projectquota.Open(v.Path)
	if p == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if !p.IsOwn() {
		return nil
	}
	return p.Limit(v.Size)
}

// unlimit removes the limit of a directory whose files are about to be removed, so that its project is unused
// afterwards.
func unlimit(path string) (err error) {
	p, err := projectquota.Open(path)
	if p == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if !p.IsOwn() {
		return nil
	}
	return p.Limit(0)
}
