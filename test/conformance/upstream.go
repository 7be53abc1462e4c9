// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kindred-project/kindred/test/servers"
)

// upstream starts a fresh cluster of upstream's own programs.
type upstream struct{ servers.UpstreamCluster }

// buildUpstream builds them. containerd is the directory of the runtime's programs, or
// empty for those that are installed.
func buildUpstream(ctx context.Context, dir, containerd string) (upstream, error) {
	if containerd != "" {
		ctr := servers.Program{
			Name: "ctr", Package: "github.com/containerd/containerd/v2/cmd/ctr", LDFlags: "-s -w",
			Env: []string{"CGO_ENABLED=0"}, // as containerd is built, so that most is compiled already
		}
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
		return cluster{}, err
	}
	return cluster{
		kubeconfig: c.Kubeconfig,
		load:       c.Load,
		stop: func() ([]string, error) {
			ended := c.Running()
			logs, err := c.Stop()
			return logs, errors.Join(ended, err)
		},
	}, nil
}
