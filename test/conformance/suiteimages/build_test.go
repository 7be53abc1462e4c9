// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package suiteimages

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

const pauseName = Registry + "/pause:3.10.2"

// TestNamesAreUpstreams reads upstream's list of images and its manifests. An image that is in neither would not be
// used by any spec.
func TestNamesAreUpstreams(t *testing.T) {
	b := Builder{Module: ".."}
	folder, err := servers.ListModule(t.Context(), b.Module, "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "test/utils/image/manifest.go"))
	if err != nil {
		t.Fatal(err)
	}
	registries := map[string]string{"PromoterE2eRegistry": Registry + "/e2e-test-images", "GcRegistry": Registry, "GcEtcdRegistry": Registry}
	for field, url := range registries {
		if !regexp.MustCompile(field + `:\s+"` + url + `"`).Match(manifest) {
			t.Errorf("upstream's %s is not %s", field, url)
		}
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`configs\[\w+\] = Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}`).FindAllStringSubmatch(string(manifest), -1) {
		if url := registries[m[1]]; url != "" {
			known[url+"/"+m[2]+":"+m[3]] = true
		}
	}
	// Manifests of the suite name some images themselves.
	manifests, err := filepath.Glob(filepath.Join(folder, "test/e2e/testing-manifests/*/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^[ -]*image: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
	}
	for _, n := range Names() {
		if !known[n] {
			t.Errorf("upstream has no image %s", n)
		}
	}
}

// build builds images and returns their archives' contents.
func build(t *testing.T, dir string, names ...string) []*images.Archive {
	t.Helper()
	b := Builder{Dir: dir, Module: ".."}
	built, err := b.Build(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	var opened []*images.Archive
	for _, a := range built {
		archive, err := images.OpenArchive(a.File)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { archive.Close() })
		opened = append(opened, archive)
	}
	return opened
}

// read decodes a JSON document of an archive.
func read(t *testing.T, a *images.Archive, digest v1.Hash, into any) {
	t.Helper()
	blob := a.Blob(digest)
	if blob == nil {
		t.Fatalf("no blob %s", digest)
	}
	if err := json.NewDecoder(blob).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// open reads the manifest and the configuration of an image.
func open(t *testing.T, a *images.Archive, name string) (v1.Manifest, v1.ConfigFile) {
	t.Helper()
	image, found := a.Images[name]
	if !found {
		t.Fatalf("no image %s", name)
	}
	var manifest v1.Manifest
	read(t, a, image.Digest, &manifest)
	var config v1.ConfigFile
	read(t, a, manifest.Config.Digest, &config)
	return manifest, config
}

func TestPause(t *testing.T) {
	_, config := open(t, build(t, t.TempDir(), pauseName)[0], pauseName)
	if config.Config.User != "65535:65535" || !slices.Equal(config.Config.Entrypoint, []string{"/pause"}) {
		t.Errorf("config %+v", config.Config)
	}
}

// TestConfigs checks configuration that specs rely on although their pods do not set it.
func TestConfigs(t *testing.T) {
	for name, want := range map[string]struct{ entrypoint, cmd string }{
		"agnhost:2.66.1":          {"/agnhost", "pause"},
		"agnhost:2.55":            {"/agnhost", "pause"},
		"busybox:1.37.0-2":        {"", "sh"},
		"nginx:1.27.0-2":          {`/bin/sh -c echo $$ > /var/run/nginx.pid; exec nginx "$0" "$@"`, "test-webserver"},
		"nautilus:1.8":            {"/agnhost", "test-webserver"},
		"kitten:1.8":              {"/agnhost", "test-webserver"},
		"nonewprivs:1.4":          {"", "nnp"},
		"sample-apiserver:1.29.2": {"/sample-apiserver", ""},
	} {
		chosen, err := choose([]string{suite + name})
		if err != nil {
			t.Error(err)
			continue
		}
		config := chosen[0].Config
		if got := strings.Join(config.Entrypoint, " "); got != want.entrypoint {
			t.Errorf("%s: entrypoint %q, want %q", name, got, want.entrypoint)
		}
		if got := strings.Join(config.Cmd, " "); got != want.cmd {
			t.Errorf("%s: command %q, want %q", name, got, want.cmd)
		}
	}
}

func TestTwoVersionsDiffer(t *testing.T) {
	digests := map[string]string{}
	for _, r := range recipes {
		key := (inputs{}).ofRecipe(r)
		if other, found := digests[key]; found {
			t.Errorf("%s is %s", r.Name, other)
		}
		digests[key] = r.Name
	}
}

func TestUnknownImage(t *testing.T) {
	b := Builder{Dir: t.TempDir(), Module: ".."}
	if _, err := b.Build(t.Context(), "nginx"); err == nil || !strings.Contains(err.Error(), pauseName) {
		t.Errorf("error %v", err)
	}
}

func TestSameInputsGiveTheSameImage(t *testing.T) {
	one, two := build(t, t.TempDir(), pauseName)[0], build(t, t.TempDir(), pauseName)[0]
	if one.Images[pauseName].Digest != two.Images[pauseName].Digest {
		t.Errorf("digests %s and %s", one.Images[pauseName].Digest, two.Images[pauseName].Digest)
	}
}

// TestTamperedArchive damages a real archive.
func TestTamperedArchive(t *testing.T) {
	b := Builder{Dir: t.TempDir(), Module: ".."}
	built, err := b.Build(t.Context(), pauseName)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(built[0].File)
	if err != nil {
		t.Fatal(err)
	}
	tampered := slices.Clone(want)
	tampered[len(tampered)/2] ^= 1
	if err := os.WriteFile(built[0].File, tampered, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context(), pauseName); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(built[0].File); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the damaged archive was not rebuilt (%v)", err)
	}
}

// need skips a test on a machine that lacks a program; CI has them all.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// layerEntries lists a layer's headers by name.
func layerEntries(t *testing.T, r io.Reader) map[string]*tar.Header {
	t.Helper()
	entries := map[string]*tar.Header{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		entries[h.Name] = h
	}
}

func fillOf(t *testing.T, dir string, part layer) map[string]*tar.Header {
	t.Helper()
	for _, folder := range []string{"layers", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := Builder{Dir: dir, Module: ".."}
	packed, err := b.layer(context.Background(), inputs{}, part)
	if err != nil {
		t.Fatal(err)
	}
	content, err := packed.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	return layerEntries(t, content)
}

func TestSetuidSurvives(t *testing.T) {
	chosen, err := choose([]string{suite + "nonewprivs:1.4"})
	if err != nil {
		t.Fatal(err)
	}
	nnp := fillOf(t, t.TempDir(), chosen[0].Layers[0])["usr/local/bin/nnp"]
	if nnp == nil || nnp.Mode != 0o4755 || nnp.Uid != 0 {
		t.Errorf("usr/local/bin/nnp is %+v", nnp)
	}
}

// TestBusybox: the shell keeps variables whose names are not identifiers, and prints the error that
// specs expect when it cannot write.
func TestBusybox(t *testing.T) {
	need(t, "apt-get", "make", "gcc", "bzip2")
	binary, err := buildBusybox(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "sh", "-c", "env; echo lost > /proc/nothing")
	cmd.Env = []string{"data-1=value"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "data-1=value\n") || !strings.Contains(string(out), "can't create /proc/nothing: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPackages: apt resolves a relative directory against its own root.
func TestPackages(t *testing.T) {
	need(t, "apt-get", "dpkg-deb")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Rel(here, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	entries := fillOf(t, folder, layer{"netbase", []source{packages{"netbase"}}})
	if entries["etc/services"] == nil {
		t.Errorf("Debian's netbase without /etc/services: %d entries", len(entries))
	}
}
