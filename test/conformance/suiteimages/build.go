// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/kept"
)

// Builder builds images and caches them.
type Builder struct {
	// Dir is the directory of the cached layers and archives.
	Dir string
	// Module is the directory of the go.mod whose programs are built.
	Module string
	// Progress gets a line for each step that takes long.
	Progress io.Writer
}

// Archive is an image in an OCI archive.
type Archive struct {
	Name string // the image's reference
	File string
}

// own is the source of this package: images are rebuilt when it changes.
//
//go:embed *.go
var own embed.FS

// Build builds the named images, or all, as OCI archives. Archives that are up to date in Dir are
// kept.
func (b *Builder) Build(ctx context.Context, names ...string) ([]Archive, error) {
	chosen, err := choose(names)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"archives", "bin", "layers"} {
		if err := os.MkdirAll(filepath.Join(b.Dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	in, err := b.inputs()
	if err != nil {
		return nil, err
	}
	var archives []Archive
	for _, r := range chosen {
		file := filepath.Join(b.Dir, "archives", fileName(r.Name)+".tar")
		if err := kept.File(file, in.ofRecipe(r), func() error { return b.image(ctx, in, r, file) }); err != nil {
			return nil, fmt.Errorf("image %s: %w", r.Name, err)
		}
		archives = append(archives, Archive{Name: r.Name, File: file})
	}
	return archives, nil
}

func choose(names []string) ([]recipe, error) {
	if len(names) == 0 {
		return recipes, nil
	}
	var chosen []recipe
	for _, name := range names {
		i := slices.IndexFunc(recipes, func(r recipe) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no image is called %s; there are %s", name, strings.Join(Names(), " "))
		}
		chosen = append(chosen, recipes[i])
	}
	return chosen, nil
}

// fileName makes a file name of a reference.
func fileName(name string) string {
	return strings.NewReplacer("/", "_", ":", "_").Replace(strings.TrimPrefix(name, Registry+"/"))
}

func (b *Builder) say(format string, args ...any) {
	if b.Progress != nil {
		fmt.Fprintf(b.Progress, format+"\n", args...)
	}
}

func (b *Builder) image(ctx context.Context, in inputs, r recipe, file string) error {
	var layers []v1.Layer
	for _, part := range r.Layers {
		l, err := b.layer(ctx, in, part)
		if err != nil {
			return fmt.Errorf("layer %s: %w", part.Name, err)
		}
		layers = append(layers, l)
	}
	var base v1.Image
	if r.OnBusybox {
		var err error
		if base, err = images.BusyboxImage(); err != nil {
			return err
		}
	}
	image, err := images.Assemble(base, r.Config, layers...)
	if err != nil {
		return err
	}
	b.say("image %s", r.Name)
	return images.Write(file, image, r.Name)
}

func (b *Builder) layer(ctx context.Context, in inputs, part layer) (v1.Layer, error) {
	file := filepath.Join(b.Dir, "layers", part.Name+".tar.gz")
	err := kept.File(file, in.ofLayer(part), func() error {
		b.say("layer %s", part.Name)
		return b.fill(ctx, part, file)
	})
	if err != nil {
		return nil, err
	}
	return images.OpenLayer(file)
}

func (b *Builder) fill(ctx context.Context, part layer, file string) error {
	_, err := images.LayerFile(file, func(l *images.Layer) {
		for _, s := range part.Content {
			if err := s.add(ctx, b, l); err != nil {
				l.Fail(err)
				return
			}
		}
	})
	return err
}

// inputs are digests of what images depend on in addition to their recipes.
type inputs struct {
	system  string // the layout of images, the architecture, and the machine's Debian
	module  string // the versions of all built modules, and the compiler
	busybox string
}

func (b *Builder) inputs() (inputs, error) {
	system := kept.NewKey(runtime.GOARCH)
	for _, source := range []fs.FS{own, images.Source} {
		if err := system.AddSource(source); err != nil {
			return inputs{}, err
		}
	}
	if err := system.AddFile("/etc/os-release"); err != nil {
		return inputs{}, err
	}
	module := kept.NewKey(runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		if err := module.AddFile(filepath.Join(b.Module, name)); err != nil {
			return inputs{}, err
		}
	}
	busybox := kept.NewKey()
	// If busybox is missing, the error of its image says what to install.
	if binary, err := exec.LookPath("busybox"); err == nil {
		if err := busybox.AddFile(binary); err != nil {
			return inputs{}, err
		}
	}
	return inputs{system.String(), module.String(), busybox.String()}, nil
}

func (in inputs) ofLayer(part layer) string {
	values := []any{in.system, part}
	if slices.ContainsFunc(part.Content, ofModule) {
		values = append(values, in.module)
	}
	return kept.NewKey(values...).String()
}

func (in inputs) ofRecipe(r recipe) string {
	values := []any{in.system, r.Name, r.Config}
	for _, part := range r.Layers {
		values = append(values, in.ofLayer(part))
	}
	if r.OnBusybox {
		values = append(values, in.busybox)
	}
	return kept.NewKey(values...).String()
}
