// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kindred-project/kindred/internal/containerd/pause"
	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

// source is content of a layer. Its printed form (%#v) is part of the layer's digest, so it has
// plain fields only.
type source interface {
	add(ctx context.Context, b *Builder, l *images.Layer) error
}

type (
	dir struct {
		Path string
		Mode int64
	}
	text struct{ Path, Content string }
	link struct{ Path, Target string }
	// program is a static program, built from a package of a module.
	program struct {
		Path, Package string
		Mode          int64
	}
	// upstream is a file of k8s.io/kubernetes.
	upstream struct{ Path, File string }
	// pauseProgram is the program of Kindred's sandboxes.
	pauseProgram struct{ Path string }
)

// ofModule reports whether a source comes from the module's go.mod.
func ofModule(s source) bool {
	switch s.(type) {
	case program, upstream:
		return true
	}
	return false
}

func (d dir) add(_ context.Context, _ *Builder, l *images.Layer) error {
	l.Dir(d.Path, d.Mode)
	return nil
}

func (t text) add(_ context.Context, _ *Builder, l *images.Layer) error {
	l.File(t.Path, 0o644, []byte(t.Content))
	return nil
}

func (k link) add(_ context.Context, _ *Builder, l *images.Layer) error {
	l.Link(k.Path, k.Target)
	return nil
}

func (p pauseProgram) add(_ context.Context, _ *Builder, l *images.Layer) error {
	content, err := pause.Binary(runtime.GOARCH)
	if err != nil {
		return err
	}
	l.File(p.Path, 0o755, content)
	return nil
}

func (p program) add(ctx context.Context, b *Builder, l *images.Layer) error {
	build := servers.Program{Name: path.Base(p.Path), Package: p.Package, LDFlags: "-s -w"}
	file, err := build.Build(ctx, b.Module, filepath.Join(b.Dir, "bin"))
	if err != nil {
		return err
	}
	return copyFile(l, p.Path, p.Mode, file)
}

func (u upstream) add(ctx context.Context, b *Builder, l *images.Layer) error {
	folder, err := servers.ListModule(ctx, b.Module, "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	return copyFile(l, u.Path, 0o644, filepath.Join(folder, u.File))
}

// output runs a command. Its error includes the command's standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

func copyFile(l *images.Layer, name string, mode int64, file string) error {
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	l.Copy(name, mode, info.Size(), content)
	return nil
}
