// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package projectquota limits and measures directories by project quotas (ext4 or XFS, mounted with prjquota): all files
// below a directory belong to its project, whose size the kernel knows at any time. See quotactl(2) and
// ioctl_xfs_fsgetxattr(2).
package projectquota

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Project is a directory in a file system with project quotas.
type Project struct {
	dir *os.File
	// attr are the attributes of the directory, parent those of the directory that it is in.
	attr, parent fsxattr
}

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	Flags, ExtentSize, Extents, ID, CowExtentSize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk of linux/quota.h.
type dqblk struct {
	HardBlocks, SoftBlocks, Space, HardFiles, SoftFiles, Files, BlockTime, FileTime uint64
	Valid, _                                                                        uint32
}

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x200      // FS_XFLAG_PROJINHERIT

	projectQuota   = 2        // PRJQUOTA
	getState       = 0x5808   // Q_XGETQSTATV
	getQuota       = 0x800007 // Q_GETQUOTA
	setQuota       = 0x800008 // Q_SETQUOTA
	stateVersion   = 1        // FS_QSTATV_VERSION1
	stateFlags     = 2        // the offset of qs_flags
	stateSize      = 256      // more than the kernel fills in
	enforced       = 1 << 5   // FS_QUOTA_PDQ_ENFD
	blockLimits    = 1        // QIF_BLIMITS
	quotaBlockSize = 1024     // QIF_DQBLKSIZE

	// candidates is the number of IDs that the project of a directory may have.
	candidates = 256
)

// Open returns the project of a directory, or nil if the file system limits no projects.
func Open(path string) (*Project, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	p := &Project{dir: dir}
	state := [stateSize]byte{stateVersion}
	err = p.quotactl(getState, 0, unsafe.Pointer(&state))
	flags := uint16(state[stateFlags]) | uint16(state[stateFlags+1])<<8
	if err != nil || flags&enforced == 0 {
		return nil, dir.Close() // The file system, or the kernel, has no quotas.
	}
	if err := p.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("read the project of %s: %w", path, err), dir.Close())
	}
	return p, nil
}

// read reads the attributes of the directory and of its parent.
func (p *Project) read() (err error) {
	if err := ioctl(p.dir, getAttributes, &p.attr); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(p.dir.Name()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	return ioctl(parent, getAttributes, &p.parent)
}

// Close closes the directory.
func (p *Project) Close() error { return p.dir.Close() }

// IsOwn reports whether the directory has a project of its own, which Claim gave it.
func (p *Project) IsOwn() bool { return isOwn(p.dir.Name(), p.attr, p.parent) }

// isOwn reports whether the project of a directory is one that Claim gave it. A directory is made with the
// project of its parent, and may be restored with that of another directory: those limits are not ours.
func isOwn(path string, dir, parent fsxattr) bool {
	return dir.Flags&inherit != 0 && dir.ID != parent.ID && dir.ID-firstID(path) < candidates
}

// choosing is held between the choice of a project and its first use.
var choosing sync.Mutex

// Claim gives a directory that is new and empty, or was when this was first done, a project of its own. limit limits its
// size in bytes; with 0, it is only measured.
func (p *Project) Claim(limit int64) error {
	choosing.Lock()
	defer choosing.Unlock()
	if !p.IsOwn() {
		if err := p.create(); err != nil {
			return err
		}
	}
	if limit == 0 {
		return nil
	}
	return p.Limit(limit)
}

// Usage returns the size of all files of the project, and their number.
func (p *Project) Usage() (bytes, inodes uint64, err error) {
	quota, err := p.quota(p.attr.ID)
	return quota.Space, quota.Files, err
}

// ID returns the ID of the project that the directory belongs to.
func (p *Project) ID() uint32 { return p.attr.ID }

// SizeLimit returns the limit of the project in bytes, or 0.
func (p *Project) SizeLimit() (int64, error) {
	quota, err := p.quota(p.attr.ID)
	return int64(quota.HardBlocks) * quotaBlockSize, err
}

// IsUsed reports whether a project of the file system has files or a limit.
func (p *Project) IsUsed(id uint32) (bool, error) {
	quota, err := p.quota(id)
	return quota.isUsed(), err
}

// create gives a directory without files a project that nothing else uses.
func (p *Project) create() error {
	id, err := p.unused()
	if err != nil {
		return err
	}
	return p.Join(id)
}

// Join makes the directory, and all files that will be made below it, a part of a project.
func (p *Project) Join(id uint32) error {
	p.attr.ID, p.attr.Flags = id, p.attr.Flags|inherit
	if err := ioctl(p.dir, setAttributes, &p.attr); err != nil {
		return fmt.Errorf("set the project of %s: %w", p.dir.Name(), err)
	}
	return nil
}

// firstID returns the first of the IDs that the project of a directory may have. It is a hash of the path, because
// administrators and other programs number their projects from below.
func firstID(path string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(path))
	return max(hash.Sum32()>>1, 1)
}

// unused returns the ID of a project that nothing uses.
func (p *Project) unused() (uint32, error) {
	first := firstID(p.dir.Name())
	for id := first; id-first < candidates; id++ {
		quota, err := p.quota(id)
		if err != nil || !quota.isUsed() {
			return id, err
		}
	}
	return 0, fmt.Errorf("all projects from %d to %d are used", first, first+candidates-1)
}

// quota returns the limits and the usage of a project of the file system.
func (p *Project) quota(id uint32) (quota dqblk, err error) {
	err = p.quotactl(getQuota, id, unsafe.Pointer(&quota))
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return dqblk{}, nil
	case err != nil:
		return dqblk{}, fmt.Errorf("read the quota of project %d: %w", id, err)
	}
	return quota, nil
}

// isUsed reports whether a project has files or a limit.
func (q dqblk) isUsed() bool {
	return q.HardBlocks != 0 || q.SoftBlocks != 0 || q.HardFiles != 0 || q.SoftFiles != 0 || q.Space != 0 || q.Files != 0
}

// Limit limits the size of all files of the project, in bytes. 0 is no limit.
func (p *Project) Limit(size int64) error {
	blocks := (uint64(size) + quotaBlockSize - 1) / quotaBlockSize
	err := p.quotactl(setQuota, p.attr.ID, unsafe.Pointer(&dqblk{HardBlocks: blocks, SoftBlocks: blocks, Valid: blockLimits}))
	if err != nil {
		return fmt.Errorf("set the quota of project %d: %w", p.attr.ID, err)
	}
	return nil
}

func ioctl(dir *os.File, request uintptr, attr *fsxattr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(attr)))
	return errorOf(errno)
}

// quotactl calls quotactl_fd(2), which Linux has since 5.14.
func (p *Project) quotactl(command uintptr, id uint32, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, p.dir.Fd(), command<<8|projectQuota, uintptr(id), uintptr(data), 0, 0)
	return errorOf(errno)
}

func errorOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
