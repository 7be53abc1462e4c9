// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/kept"
)

// packages are what the machine has besides a minimal Debian.
var packages = []string{
	"systemd-sysv", "udev", "dbus", "kmod", "libpam-systemd", "linux-image-cloud-amd64", "initramfs-tools", "zstd",
	"containerd", "runc", "containernetworking-plugins", "iptables", "nftables", "iproute2",
	"apparmor", "openssh-server", "e2fsprogs", "procps", "ca-certificates",
}

// files are written into the machine's file system.
var files = map[string]string{
	"etc/systemd/network/10-machine.network": "[Match]\nName=en*\n[Network]\nDHCP=yes\n",
	"etc/hostname":                           "machine\n",
	"etc/hosts":                              "127.0.0.1 localhost machine\n",
	"etc/resolv.conf":                        "nameserver 10.0.2.3\n",
	"etc/fstab":                              "/dev/vda / ext4 rw,prjquota 0 1\n/dev/vdb /media ext4 ro,nofail 0 0\n/swap none swap nofail 0 0\n",
}

// image is a machine's kernel, initial RAM disk, root file system, and the key that may log in as root.
type image struct{ kernel, initrd, root, key string }

// openImage returns the image, which it builds if it is missing or was built otherwise.
func openImage(t *testing.T) image {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "kindred-vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	i := image{kernel: filepath.Join(dir, "vmlinuz"), initrd: filepath.Join(dir, "initrd"), root: filepath.Join(dir, "root.img"), key: filepath.Join(dir, "key")}
	key := fmt.Sprint(packages, files)
	if err := kept.File(i.root, key, i.build); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i image) build() error {
	root, err := os.MkdirTemp("", "kindred-vm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	dir := filepath.Dir(i.root)
	for _, old := range []string{i.key, i.key + ".pub", i.root} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	steps := [][]string{
		{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", i.key},
		{
			"mmdebstrap", "--quiet", "--variant=minbase", "--format=directory", "--include=" + strings.Join(packages, ","),
			`--aptopt=Apt::Install-Recommends "false"`, "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
			// The initial RAM disk mounts the file system with quotas.
			`--customize-hook=echo quota_v2 >>"$1/etc/initramfs-tools/modules"`,
			`--customize-hook=chroot "$1" update-initramfs -u`,
			`--customize-hook=chroot "$1" systemctl enable systemd-networkd ssh`,
			`--customize-hook=chroot "$1" systemctl disable containerd`,
			`--customize-hook=chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer`,
			`--customize-hook=install -D -m 600 ` + i.key + `.pub "$1/root/.ssh/authorized_keys"`,
			`--customize-hook=cp "$1"/boot/vmlinuz-* ` + i.kernel + ` && cp "$1"/boot/initrd.img-* ` + i.initrd,
			"bookworm", root,
		},
	}
	for _, step := range steps {
		if err := run(dir, step...); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return makeDisk(i.root, root, 4<<30, "-O", "project,quota", "-E", "quotatype=usrquota:grpquota:prjquota")
}

// makeDisk writes a disk with an ext4 file system that has the files of a directory.
func makeDisk(file, dir string, size int64, options ...string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, size); err != nil {
		return err
	}
	return run("/", append(append([]string{"mkfs.ext4", "-q", "-F"}, options...), "-d", dir, file)...)
}

// run runs a program, whose output becomes the error's text.
func run(dir string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out)
	}
	return nil
}
