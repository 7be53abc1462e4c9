// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
	"github.com/kindred-project/kindred/test/servers"
)

// upstream starts a new cluster of upstream's programs.
type upstream struct{ servers.UpstreamCluster }

// buildUpstream builds the programs. containerd is the directory of the runtime's programs, or
// empty to use the installed ones.
func buildUpstream(ctx context.Context, dir, containerd string) (upstream, error) {
	if containerd != "" {
		ctr := servers.Program{Name: "ctr", Package: "github.com/containerd/containerd/v2/cmd/ctr", LDFlags: "-s -w"}
		if _, err := ctr.Build(ctx, filepath.Join(dir, "containerd"), containerd); err != nil {
			return upstream{}, err
		}
	}
	programs, err := servers.BuildCluster(ctx, filepath.Join(dir, "../servers"), containerd)
	return upstream{programs}, err
}

func (u upstream) start(ctx context.Context, dir string) (cluster, error) {
	c, err := u.Start(ctx, dir)
	if err != nil {
		// Start has removed everything except the logs.
		return cluster{stop: func() ([]string, error) { return filepath.Glob(filepath.Join(dir, "*.log")) }}, err
	}
	return cluster{
		kubeconfig: c.Kubeconfig,
		hosts:      []string{filepath.Join(dir, "certs.d")},
		mirror:     loopback,
		load: func(ctx context.Context, archives []suiteimages.Archive) error {
			return c.Load(ctx, files(archives))
		},
		stop: func() ([]string, error) {
			ended := c.CheckRunning()
			logs, err := c.Stop()
			return logs, errors.Join(ended, err)
		},
	}, nil
}
