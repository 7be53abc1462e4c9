// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kindred-project/kindred/test/images"
)

// busybox is compiled from the authors' source without Debian's patches. One of them makes the
// shell drop environment variables whose names are not identifiers, which specs use.
type busybox struct{ Path string }

func (x busybox) add(ctx context.Context, b *Builder, l *images.Layer) error {
	folder, err := os.MkdirTemp(b.Dir, "busybox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary, err := buildBusybox(ctx, folder)
	if err != nil {
		return err
	}
	return copyFile(l, x.Path, 0o755, binary)
}

// buildBusybox compiles in a directory, as the makefile does by default, and returns the program.
func buildBusybox(ctx context.Context, folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	source, err := fetchSource(ctx, folder, "busybox")
	if err != nil {
		return "", err
	}
	for _, step := range [][]string{
		{"tar", "-xf", source, "--strip-components=1"},
		{"make", "defconfig"},
		// Static, because an image has no libraries. Traffic control does not compile with the
		// headers of newer kernels.
		{"sed", "-i", "s/^# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/", ".config"},
		{"make", fmt.Sprintf("-j%d", runtime.NumCPU()), "busybox"},
	} {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		// Do not inherit the variables of a make that runs the tests.
		cmd.Dir, cmd.Env = folder, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}
		if _, err := output(cmd); err != nil {
			return "", err
		}
	}
	return filepath.Join(folder, "busybox"), nil
}

// fetchSource downloads the source of a Debian package and returns the authors' part. It uses its
// own list of sources, because machines often have lists of binary packages only.
func fetchSource(ctx context.Context, folder, name string) (string, error) {
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return "", err
		}
	}
	repositories, err := output(exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages", "Origin: Debian"))
	if err != nil {
		return "", err
	}
	list := filepath.Join(folder, "sources.list")
	if err := os.WriteFile(list, []byte(repositories+"\n"), 0o644); err != nil {
		return "", err
	}
	options := []string{"-qq", "-o", "APT::Sandbox::User=", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(folder, "lists"), "-o", "Dir::Cache=" + filepath.Join(folder, "cache")}
	for _, verb := range [][]string{{"update"}, {"--download-only", "source", name}} {
		cmd := exec.CommandContext(ctx, "apt-get", append(options, verb...)...)
		cmd.Dir = folder
		if _, err := output(cmd); err != nil {
			return "", fmt.Errorf("fetching the source of Debian's %s: %w", name, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(folder, name+"_*.orig.tar.*"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(err, fmt.Errorf("the source of %s has %d archives of its authors: %s", name, len(found), strings.Join(found, " ")))
	}
	return found[0], nil
}
