// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localpath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// project is a directory in a file system with project quotas (ext4 or XFS, mounted with prjquota): all files
// below belong to its project, whose size is limited. See quotactl(2) and ioctl_xfs_fsgetxattr(2).
type project struct {
	dir  *os.File
	attr fsxattr
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
)

// openProject returns the project of a directory, or nil if the file system limits no projects.
func openProject(path string) (*project, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	p := &project{dir: dir}
	state := [stateSize]byte{stateVersion}
	err = p.quotactl(getState, 0, unsafe.Pointer(&state))
	flags := uint16(state[stateFlags]) | uint16(state[stateFlags+1])<<8
	if err != nil || flags&enforced == 0 {
		return nil, dir.Close() // The file system, or the kernel, has no quotas.
	}
	if err := p.ioctl(getAttributes); err != nil {
		return nil, errors.Join(fmt.Errorf("read the project of %s: %w", path, err), dir.Close())
	}
	return p, nil
}

func (p *project) close() error { return p.dir.Close() }

// isOwn reports whether the directory has a project of its own.
func (p *project) isOwn() bool { return p.attr.ID != 0 && p.attr.Flags&inherit != 0 }

// create gives a directory without files a project that nothing else uses.
func (p *project) create() error {
	id, err := p.unused()
	if err != nil {
		return err
	}
	p.attr.ID, p.attr.Flags = id, p.attr.Flags|inherit
	if err := p.ioctl(setAttributes); err != nil {
		return fmt.Errorf("set the project of %s: %w", p.dir.Name(), err)
	}
	return nil
}

// unused returns the ID of a project that nothing uses. It begins at a hash of the path, because other programs
// number their projects from below.
func (p *project) unused() (uint32, error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(p.dir.Name()))
	for id := max(hash.Sum32()>>1, 1); ; id++ {
		if used, err := p.isUsed(id); !used || err != nil {
			return id, err
		}
	}
}

// isUsed reports whether a project of the file system has files or a limit.
func (p *project) isUsed(id uint32) (bool, error) {
	var used dqblk
	err := p.quotactl(getQuota, id, unsafe.Pointer(&used))
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the quota of project %d: %w", id, err)
	}
	return used.HardBlocks != 0 || used.SoftBlocks != 0 || used.Space != 0 || used.Files != 0, nil
}

// limit limits the size of all files of the project, in bytes. 0 is no limit.
func (p *project) limit(size int64) error {
	blocks := (uint64(size) + quotaBlockSize - 1) / quotaBlockSize
	err := p.quotactl(setQuota, p.attr.ID, unsafe.Pointer(&dqblk{HardBlocks: blocks, SoftBlocks: blocks, Valid: blockLimits}))
	if err != nil {
		return fmt.Errorf("set the quota of project %d: %w", p.attr.ID, err)
	}
	return nil
}

func (p *project) ioctl(request uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, p.dir.Fd(), request, uintptr(unsafe.Pointer(&p.attr)))
	return errorOf(errno)
}

// quotactl calls quotactl_fd(2), which Linux has since 5.14.
func (p *project) quotactl(command uintptr, id uint32, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, p.dir.Fd(), command<<8|projectQuota, uintptr(id), uintptr(data), 0, 0)
	return errorOf(errno)
}

func errorOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
