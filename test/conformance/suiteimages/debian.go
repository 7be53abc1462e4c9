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

// packages are packages of Debian and all that they depend on, unpacked.
type packages struct{ Names string }

// surplus is what no spec reads, half of the bytes.
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
	// With an empty list of what is installed, apt finds everything missing.
	args := append([]string{"--yes", "--no-install-recommends", "--download-only", "-o", "Dir::State::status=/dev/null", "install"}, strings.Fields(p.Names)...)
	return b.download(ctx, args, func(archive string) error {
		return unpack(ctx, l, archive, wanted)
	})
}

// download fetches packages and calls use for each, in the order of their names.
func (b *Builder) download(ctx context.Context, args []string, use func(archive string) error) error {
	folder, err := os.MkdirTemp(b.Dir, "packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	// apt takes a relative path for one below its own root.
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(folder, "partial"), 0o755); err != nil {
		return err
	}
	// The folder is ours alone: no lock, and no other user who could not write to it.
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

// unpack adds a package's files as they are, owners and modes too.
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
	// A tar file is padded. Who closes a pipe before its end stops the writer.
	_, unread := io.Copy(io.Discard, content)
	if err := errors.Join(unread, cmd.Wait()); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(archive), err)
	}
	return nil
}
