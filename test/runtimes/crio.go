// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/kindred-project/kindred/test/images"
	"github.com/kindred-project/kindred/test/servers"
)

// crioTags select C libraries that Debian has, and the Go implementation of OpenPGP.
var crioTags = []string{
	"seccomp", "containers_image_openpgp", "containers_image_ostree_stub",
	"exclude_graphdriver_btrfs", "exclude_graphdriver_devicemapper",
}

//go:embed crio.conf.tmpl
var crioConfig string

// crioNetwork is the pod network, which is the user's with a runtime that Kindred does not start.
const crioNetwork = `{"cniVersion": "1.0.0", "name": "kindred-crio", "plugins": [
  {"type": "bridge", "bridge": "kindred-crio", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}`

// trustAll is a signature policy that accepts the images, which are not signed.
const trustAll = `{"default": [{"type": "insecureAcceptAnything"}]}`

// crioPause is the image of sandboxes that need a process of their own.
const crioPause = "localhost/pause:1"

// crio is a CRI-O with its files in one directory.
type crio struct {
	Dir, Pinns, Conmon string
	// Attach has the sockets of consoles. The path of a socket has at most 107 bytes (unix(7)), 72 of which are CRI-O's.
	Attach string
	// Handlers are the OCI runtimes, by name.
	Handlers map[string]string
	process  *exec.Cmd
	ended    chan error
}

// startCRIO builds CRI-O, starts it, and loads the images of the scenarios, because "kindred image load" needs containerd.
func startCRIO(ctx context.Context) ([]string, func(), error) {
	bin, err := build(ctx, "crio", "github.com/cri-o/cri-o", crioTags, "github.com/cri-o/cri-o/cmd/crio")
	if err != nil {
		return nil, nil, err
	}
	c := &crio{Pinns: filepath.Join(bin, "pinns")}
	if err := compilePinns(ctx, c.Pinns); err != nil {
		return nil, nil, err
	}
	runc, err := buildRunc(ctx)
	if err != nil {
		return nil, nil, err
	}
	crun, err := fetchCrun(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.Handlers = map[string]string{"runc": filepath.Join(runc, "runc"), "crun": filepath.Join(crun, "crun")}
	if c.Conmon, err = exec.LookPath("conmon"); err != nil {
		return nil, nil, err
	}
	if c.Dir, err = os.MkdirTemp("", "kindred-crio-"); err != nil {
		return nil, nil, err
	}
	if c.Attach, err = os.MkdirTemp("/run", "kindred-"); err == nil {
		err = c.start(ctx, filepath.Join(bin, "crio"))
	}
	if err != nil {
		c.stop()
		return nil, nil, err
	}
	return []string{"KINDRED_RUNTIME=unix://" + c.socket(), "PATH=" + crun + string(os.PathListSeparator) + os.Getenv("PATH")}, c.stop, nil
}

// compilePinns compiles the program of CRI-O that makes namespaces, which is written in C.
func compilePinns(ctx context.Context, program string) error {
	dir, err := servers.ListModule(ctx, "test/runtimes/crio", "{{.Dir}}", "github.com/cri-o/cri-o")
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "pinns/src/*.c"))
	if err != nil {
		return err
	}
	return command(ctx, "gcc", append([]string{"-O2", "-o", program}, sources...)...)
}

func (c *crio) socket() string { return filepath.Join(c.Dir, "crio.sock") }

func (c *crio) start(ctx context.Context, binary string) error {
	if err := c.restrict(ctx); err != nil {
		return err
	}
	if err := c.configure(); err != nil {
		return err
	}
	if err := c.loadImages(ctx); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.Dir, "crio.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c.process = exec.Command(binary, "--config", filepath.Join(c.Dir, "crio.conf"), "--config-dir", "")
	c.process.Stdout, c.process.Stderr = log, log
	if err := c.process.Start(); err != nil {
		return err
	}
	c.ended = make(chan error, 1)
	go func() { c.ended <- c.process.Wait() }()
	return c.awaitReady(ctx)
}

// restrict puts a program before the OCI runtimes if root lacks CAP_SYS_RESOURCE, which CRI-O needs.
func (c *crio) restrict(ctx context.Context) error {
	if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || has == 1 {
		return err
	}
	program := filepath.Join(c.Dir, "restrict")
	if err := command(ctx, "go", "build", "-o", program, "./test/runtimes/restrict"); err != nil {
		return err
	}
	for name, binary := range c.Handlers {
		c.Handlers[name] = filepath.Join(c.Dir, name+".sh")
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", program, binary)
		if err := os.WriteFile(c.Handlers[name], []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady waits until CRI-O accepts connections.
func (c *crio) awaitReady(ctx context.Context) error {
	late := time.After(30 * time.Second)
	for {
		if conn, err := net.Dial("unix", c.socket()); err == nil {
			return conn.Close()
		}
		select {
		case err := <-c.ended:
			log, _ := os.ReadFile(filepath.Join(c.Dir, "crio.log"))
			return fmt.Errorf("CRI-O ended: %v\n%s", err, log)
		case <-late:
			return errors.New("CRI-O does not listen after 30 s")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// configure writes CRI-O's files.
func (c *crio) configure() error {
	t, err := template.New("").Parse(crioConfig)
	if err != nil {
		return err
	}
	var config strings.Builder
	if err := t.Execute(&config, c); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(c.Dir, "cni"), 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"crio.conf":            config.String(),
		"policy.json":          trustAll,
		"cni/kindred.conflist": fmt.Sprintf(crioNetwork, filepath.Join(c.Dir, "addresses")),
	} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// loadImages copies images to CRI-O's storage, from archives of both formats.
func (c *crio) loadImages(ctx context.Context) error {
	busybox, err := images.BusyboxImage()
	if err != nil {
		return err
	}
	pause, err := images.Assemble(busybox, v1.Config{Cmd: []string{"/bin/sleep", "2147483647"}})
	if err != nil {
		return err
	}
	data, err := images.Data()
	if err != nil {
		return err
	}
	for _, i := range []struct {
		name, format string
		image        v1.Image
	}{
		{"docker.io/library/busybox:v1", "oci-archive", busybox},
		{"docker.io/library/busybox:v2", "docker-archive", busybox},
		{images.DataName, "oci-archive", data},
		{crioPause, "docker-archive", pause},
	} {
		archive := filepath.Join(c.Dir, "image.tar")
		if err := writeArchive(archive, i.format, i.image, i.name); err != nil {
			return err
		}
		to := fmt.Sprintf("containers-storage:[overlay@%[1]s/root+%[1]s/runroot]%[2]s", c.Dir, i.name)
		if err := command(ctx, "skopeo", "--policy", filepath.Join(c.Dir, "policy.json"), "copy", "--quiet", i.format+":"+archive, to); err != nil {
			return err
		}
	}
	return nil
}

// writeArchive writes an archive of the OCI layout, or one as docker save writes it.
func writeArchive(file, format string, image v1.Image, reference string) error {
	if format == "oci-archive" {
		return images.Write(file, image, reference)
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, ref, image)
}

// stop ends CRI-O and removes its files. The scenarios have removed their pods.
func (c *crio) stop() {
	if c.ended != nil {
		_ = c.process.Process.Signal(unix.SIGTERM)
		select {
		case <-c.ended:
		case <-time.After(10 * time.Second):
			_ = c.process.Process.Kill()
		}
	}
	c.unmount()
	_ = exec.Command("ip", "link", "delete", "kindred-crio").Run() // made with the first pod
	for _, dir := range []string{c.Dir, c.Attach} {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// unmount unmounts what is mounted below the directory, the last mount first.
func (c *crio) unmount() {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		if len(fields) > 1 && strings.HasPrefix(fields[1], c.Dir+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
