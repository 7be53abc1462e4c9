// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cut drops what two machines send each other, until heal is called.
func (l *lan) cut(one, other int) (heal func()) {
	l.t.Helper()
	return l.filter(fmt.Sprintf(`iifname %[1]q oifname %[2]q drop; iifname %[2]q oifname %[1]q drop`, port(one), port(other)))
}

// isolate cuts a machine off all others. Clients on this machine, whose bridge it is, still reach it.
func (l *lan) isolate(number int) (heal func()) {
	l.t.Helper()
	return l.filter(fmt.Sprintf(`iifname %[1]q drop; oifname %[1]q drop`, port(number)))
}

// filter sets the rules of the bridge.
func (l *lan) filter(rules string) (heal func()) {
	l.t.Helper()
	l.nft(fmt.Sprintf("table bridge kindred-lan { chain forward { type filter hook forward priority 0; %s; }; }", rules))
	heal = func() { l.nft("add table bridge kindred-lan; delete table bridge kindred-lan") } // also if it is done
	l.t.Cleanup(heal)
	return heal
}

func (l *lan) nft(ruleset string) {
	l.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Errorf("nft %q: %v: %s", ruleset, err, out)
	}
}

// slowMachine adds a machine whose link takes a time that can be changed, in each direction. Its frames pass through this process.
func (l *lan) slowMachine(number int) (*otherMachine, *atomic.Int64) {
	l.t.Helper()
	m := l.unconnected(number)
	outside, inside := l.tap(m.namespace), l.tap("kindred-slow")
	link, err := netlink.LinkByName("kindred-slow")
	if err := errors.Join(err, netlink.LinkSetNsFd(link, int(m.at))); err != nil {
		l.t.Fatal(err)
	}
	there := handleAt(l.t, m.at)
	if link, err = there.LinkByName("kindred-slow"); err != nil {
		l.t.Fatal(err)
	}
	err = errors.Join(there.LinkSetName(link, "eth0"), bringUp(there, "eth0", m.address+"/24"), bringUp(there, "lo", ""), bringUp(handleAt(l.t, -1), m.namespace, ""))
	if err != nil {
		l.t.Fatal(err)
	}
	delay := &atomic.Int64{}
	go relay(outside, inside, delay)
	go relay(inside, outside, delay)
	l.connect(m)
	return m, delay
}

// tap creates a link whose frames a file has.
func (l *lan) tap(name string) *os.File {
	l.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: unix.IFF_TAP | unix.IFF_NO_PI, NonPersist: true, Queues: 1}
	if err := netlink.LinkAdd(link); err != nil {
		l.t.Fatal(err)
	}
	file := link.Fds[0]
	l.t.Cleanup(func() { _ = file.Close() }) // the link goes with it
	return file
}

// relay moves frames from one link to another until either is closed. Their order stays, also if the delay changes.
func relay(from io.Reader, to io.Writer, delay *atomic.Int64) {
	type frame struct {
		due     time.Time
		content []byte
	}
	frames := make(chan frame, 10000)
	defer close(frames)
	go func() {
		for f := range frames {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.content) // a link that is down takes no frames
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		content := make([]byte, n)
		copy(content, buffer)
		frames <- frame{time.Now().Add(time.Duration(delay.Load())), content}
	}
}

// smallDisk mounts a file system of a size in bytes, and returns a directory in it.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("kindred", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no room on a file system, until heal is called.
func fill(t *testing.T, dir string) (heal func()) {
	t.Helper()
	return fillWith(t, dir, func(file *os.File) error {
		_, err := io.Copy(file, zeros{})
		if errors.Is(err, unix.ENOSPC) {
			return nil
		}
		return err
	})
}

// fillUpTo leaves some bytes on a file system, until heal is called.
func fillUpTo(t *testing.T, dir string, left uint64) (heal func()) {
	t.Helper()
	return fillWith(t, dir, func(file *os.File) error {
		var stat unix.Statfs_t
		if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
			return err
		}
		return unix.Fallocate(int(file.Fd()), 0, 0, int64(stat.Bavail*uint64(stat.Bsize)-left))
	})
}

// fillWith fills a file system with a file, which heal removes.
func fillWith(t *testing.T, dir string, write func(*os.File) error) (heal func()) {
	t.Helper()
	file, err := os.CreateTemp(dir, "filler-")
	if err != nil {
		t.Fatal(err)
	}
	if err := write(file); err != nil {
		t.Fatalf("filling the disk: %v", err)
	}
	return func() {
		if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
			t.Error(err)
		}
	}
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
