// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is an ext4 file system on a loop device whose power can fail.
type disk struct {
	image, mount string
	mounted      bool
}

// diskSize is large enough that the cluster's reserve of free disk is not touched.
const diskSize = 2 << 30

// commitInterval is ext4's commit interval in seconds. It is longer than a round, so that only
// synced data is on the disk.
const commitInterval = 600

// newDisk makes a disk, or skips the test if the machine cannot.
func newDisk(t *testing.T) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("to mount a file system needs root")
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("no mkfs.ext4: apt-get install e2fsprogs")
	}
	dir := t.TempDir()
	d := &disk{image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "disk")}
	if err := errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, diskSize), os.Mkdir(d.mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	d.plugIn(t)
	t.Cleanup(func() {
		if d.mounted {
			d.unplug(t)
		}
	})
	return d
}

// plugIn mounts the disk: ext4 replays its journal.
func (d *disk) plugIn(t *testing.T) {
	t.Helper()
	options := fmt.Sprintf("loop,commit=%d", commitInterval)
	if out, err := exec.Command("mount", "-o", options, d.image, d.mount).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	d.mounted = true
	// A process that made a mount namespace meanwhile, such as a container runtime's, keeps the file
	// system without power, and the kernel mounts that one again.
	if _, err := os.ReadDir(d.mount); err != nil {
		t.Fatalf("the disk is still without power: %v; stop what starts containers on this machine, and run the test again", err)
	}
}

// unplug unmounts the disk, on which no process may have an open file.
func (d *disk) unplug(t *testing.T) {
	t.Helper()
	var err error
	for range 100 {
		if err = unix.Unmount(d.mount, 0); err == nil {
			d.mounted = false
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("unmount %s: %v", d.mount, err)
}

// EXT4_IOC_SHUTDOWN and the flag that discards the journal in memory (linux/ext4.h).
const (
	ext4Shutdown   = 0x8004587d
	ext4NoLogFlush = 2
)

// cut simulates power loss: unsynced data is lost, and all later requests fail.
func (d *disk) cut(t *testing.T) {
	t.Helper()
	root, err := os.Open(d.mount)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	flag := uint32(ext4NoLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		t.Fatalf("shut ext4 down: %v", errno)
	}
}

// tear writes random unsynced pages, as a disk does that reorders writes: some pages of a write in
// progress are on the disk, and others are not.
func (d *disk) tear(t *testing.T, random *rand.Rand) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(d.data(), "etcd/member/wal/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(logs, filepath.Join(d.data(), "etcd/member/snap/db")) {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		pageSize := int64(os.Getpagesize())
		for at := int64(0); at < info.Size(); at += pageSize {
			if random.IntN(2) == 0 {
				continue
			}
			if err := unix.SyncFileRange(int(file.Fd()), at, pageSize, unix.SYNC_FILE_RANGE_WRITE); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		_ = unix.SyncFileRange(int(file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_AFTER)
		file.Close()
	}
}

// data is the cluster's data directory.
func (d *disk) data() string { return filepath.Join(d.mount, "data") }
