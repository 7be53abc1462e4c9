// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// Kindred starts Kindred's own server.
type Kindred struct {
	// Binary is copied before it is run, because it may be rebuilt meanwhile.
	Binary string
	// Args follow "up" and the flags for directory and address.
	Args []string
	// Env is added to the environment of this process.
	Env []string
}

// Start starts the server in dir. Its data directory is [Server.Data].
func (k Kindred) Start(ctx context.Context, dir string) (_ *Server, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "kindred")
	if err := CopyBinary(own, k.Binary); err != nil {
		return nil, fmt.Errorf("no binary to compare: %w; run \"make build\", or name one with -kindred", err)
	}
	data := filepath.Join(dir, "data")
	s := &Server{Name: "kindred", Data: data, Kubeconfig: filepath.Join(data, "kubeconfig")}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	args := append([]string{"up", "--data-dir", data, "--secure-port", "0", "--service-cidr", serviceCIDR}, k.Args...)
	if args, err = OnAnyDisk(filepath.Join(dir, "kubelet-config.yaml"), args); err != nil {
		return nil, err
	}
	process, err := launch("kindred", filepath.Join(dir, "kindred.log"), k.Env, own, args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, process)
	return s, process.await(ctx, func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		if err != nil {
			return err
		}
		s.connect(config)
		return s.checkReady(ctx)
	})
}

// CopyBinary copies a program, so that it can be rebuilt while the copy runs.
func CopyBinary(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	// A file that is being executed can be replaced, but not written.
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
