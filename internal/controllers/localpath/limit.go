// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"errors"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// choosing is held between the choice of a project and its first use.
var choosing sync.Mutex

// limit limits the size of a volume's directory, which is new and empty, or was when this was first done. It
// reports whether the file system can do that.
func (d directories) limit(name string, size int64) (limited bool, err error) {
	p, err := openProject(filepath.Join(d.root, name))
	if p == nil || err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	choosing.Lock()
	defer choosing.Unlock()
	if !p.isOwn() {
		if err := p.create(); err != nil {
			return false, err
		}
	}
	return true, p.limit(size)
}

// raise changes the limit of a volume's directory, if it has one.
func (d directories) raise(v *corev1.PersistentVolume, size int64) (err error) {
	if err := d.check(v); err != nil {
		return err
	}
	p, err := openProject(v.Spec.Local.Path)
	if p == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if !p.isOwn() {
		return nil
	}
	return p.limit(size)
}

// unlimit removes the limit of a directory whose files are about to be removed, so that its project is unused
// afterwards.
func unlimit(path string) (err error) {
	p, err := openProject(path)
	if p == nil || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if !p.isOwn() {
		return nil
	}
	return p.limit(0)
}
