// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
)

// StartKindred starts a copy of the binary, which may be built anew meanwhile, with so
// many simulated nodes.
func StartKindred(ctx context.Context, dir, binary string, simulatedNodes int) (_ *Server, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "kindred")
	if err := copyFile(own, binary); err != nil {
		return nil, fmt.Errorf("no binary to compare: %w; run \"make build\", or name one with -kindred", err)
	}
	data := filepath.Join(dir, "data")
	s := &Server{Name: "kindred"}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	process, err := launch("kindred", filepath.Join(dir, "kindred.log"), own,
		"up", "--data-dir", data, "--no-node", "--simulated-nodes", strconv.Itoa(simulatedNodes), "--secure-port", "0", "--service-cidr", serviceCIDR)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, process)
	return s, process.await(ctx, func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "kubeconfig"))
		if err != nil {
			return err
		}
		s.connect(config)
		return s.ready(ctx)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
