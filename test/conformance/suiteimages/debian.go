// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/test/images"
)

// packages are Debian packages with all their dependencies, unpacked.
type packages struct{ Names string }

// surplus are files that no spec reads, half of the bytes.
var surplus = []string{"usr/share/doc/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/"}

func wanted(name string) bool {
	for _, s := range surplus {
		if strings.HasPrefix(name+"/", s) {
			return false
		}
	}
	return true
}

func (p packages) add(ctx context.Context, b *Builder, l *images.Layer) error {
	// With an empty list of installed packages, apt downloads all dependencies.
	args := append([]string{"--yes", "--no-install-recommends", "--download-only", "-o", "Dir::State::status=/dev/null", "install"}, strings.Fields(p.Names)...)
	return b.download(ctx, args, func(archive string) error {
		return unpack(ctx, l, archive, wanted)
	})
}

// download downloads packages and calls use for each, sorted by name.
func (b *Builder) download(ctx context.Context, args []string, use func(archive string) error) error {
	folder, err := os.MkdirTemp(b.Dir, "packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	// apt resolves a relative path against its own root.
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(folder, "partial"), 0o755); err != nil {
		return err
	}
	// The directory is not shared: no lock, and no other user, who could not write to it.
	options := []string{"-qq", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-o", "Dir::Cache::archives=" + folder}
	cmd := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	cmd.Dir = folder
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("fetching Debian's packages (is apt's list recent? as root: apt-get update): %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(folder, "*.deb"))
	if err == nil && len(archives) == 0 {
		err = fmt.Errorf("%s fetched no package", strings.Join(cmd.Args, " "))
	}
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := use(archive); err != nil {
			return err
		}
	}
	return nil
}

// unpack adds a package's files with their owners and modes.
func unpack(ctx context.Context, l *images.Layer, archive string, keep func(name string) bool) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", archive)
	content, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.Tar(content, keep)
	// A tar file is padded. If the pipe is closed before its end, the writer fails.
	_, unread := io.Copy(io.Discard, content)
	if err := errors.Join(unread, cmd.Wait()); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(archive), err)
	}
	return nil
}
