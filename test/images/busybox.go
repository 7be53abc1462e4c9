// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// SystemPath is the PATH of an image with programs in the usual directories.
const SystemPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// accounts are the users that tests expect in an image.
const (
	accounts = "root:x:0:0:root:/root:/bin/sh\n" +
		"daemon:x:1:1:daemon:/usr/sbin:/bin/false\n" +
		"www-data:x:33:33:www-data:/var/www:/bin/false\n" +
		"nobody:x:65534:65534:nobody:/home:/bin/false\n"
	groups = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnogroup:x:65534:\n"
)

// BusyboxImage returns an image of the machine's static busybox, with a link for each of its
// applets, laid out as the busybox image of public registries. Debian's busybox 1.35 has two bugs:
// wget crashes with -T, and the shell drops environment variables whose names are not identifiers.
func BusyboxImage() (v1.Image, error) {
	binary, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("no busybox on PATH: apt-get install busybox-static")
	}
	content, err := readStatic(binary)
	if err != nil {
		return nil, err
	}
	list, err := exec.Command(binary, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", binary, err)
	}
	config := v1.Config{Cmd: []string{"sh"}, Env: []string{SystemPath}}
	return build(config, func(l *Layer) {
		for _, dir := range []string{"bin", "dev", "etc", "home", "proc", "sys", "usr", "usr/bin", "usr/sbin", "var", "var/www"} {
			l.Dir(dir, 0o755)
		}
		l.Dir("root", 0o700)
		l.Dir("tmp", 0o1777)
		l.File("bin/busybox", 0o755, content)
		for _, applet := range strings.Fields(string(list)) {
			if applet != "busybox" {
				l.Link("bin/"+applet, "busybox")
			}
		}
		l.Link("usr/bin/env", "../../bin/busybox")
		l.File("etc/passwd", 0o644, []byte(accounts))
		l.File("etc/group", 0o644, []byte(groups))
		l.File("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	})
}

// readStatic reads a program. It fails if the program needs shared libraries, which an image does
// not have.
func readStatic(binary string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Linux program: %w", binary, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is not static, and an image has no shared libraries", binary)
		}
	}
	return content, nil
}
