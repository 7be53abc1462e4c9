// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
	"github.com/kindred-project/kindred/test/servers"
)

// cluster is a cluster for the suite to run against.
type cluster struct {
	kubeconfig string
	// load adds images to the node.
	load func(ctx context.Context, archives []suiteimages.Archive) error
	// hosts is the directory in which its runtime looks for mirrors of registries.
	hosts string
	// stop stops the cluster and removes everything that it left on the machine except its logs,
	// which it returns.
	stop func() (logs []string, err error)
}

func files(archives []suiteimages.Archive) []string {
	var names []string
	for _, archive := range archives {
		names = append(names, archive.File)
	}
	return names
}

// kindred starts a new cluster of the binary in dir. containerd is the directory of the runtime's
// programs, or empty to use the installed ones. With simulated nodes there is no real one.
type kindred struct {
	binary, containerd string
	simulated          int
}

func (k kindred) start(ctx context.Context, dir string) (cluster, error) {
	up := servers.Kindred{Binary: k.binary, Env: k.env()}
	if k.simulated > 0 {
		up.Args = []string{"--no-node", "--simulated-nodes", strconv.Itoa(k.simulated)}
	}
	server, err := up.Start(ctx, dir)
	return cluster{
		kubeconfig: filepath.Join(dir, "data", "kubeconfig"),
		hosts:      filepath.Join(dir, "data", "containerd", "certs.d"),
		load: func(ctx context.Context, archives []suiteimages.Archive) error {
			if k.simulated > 0 {
				return nil // simulated nodes accept every image
			}
			return k.verb(ctx, dir, append([]string{"image", "load"}, files(archives)...)...)
		},
		stop: func() ([]string, error) {
			var ended error
			if err == nil {
				ended = server.CheckRunning()
				server.Stop()
			}
			logs, err := k.keepLogs(dir)
			return logs, errors.Join(ended, err, k.verb(context.WithoutCancel(ctx), dir, "reset"))
		},
	}, err
}

func (k kindred) env() []string {
	if k.containerd == "" {
		return nil
	}
	return []string{"PATH=" + k.containerd + string(os.PathListSeparator) + os.Getenv("PATH")}
}

// verb runs a verb of the cluster's own copy of the binary.
func (k kindred) verb(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "kindred"), append(args, "--data-dir", filepath.Join(dir, "data"))...)
	cmd.Env = append(os.Environ(), k.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kindred %v: %w: %s", args, err, out)
	}
	return nil
}

// keepLogs moves the logs out of the data directory before that is removed.
func (k kindred) keepLogs(dir string) ([]string, error) {
	logs := []string{filepath.Join(dir, "kindred.log")}
	found, err := filepath.Glob(filepath.Join(dir, "data", "logs", "*"))
	if err != nil {
		return nil, err
	}
	for _, log := range found {
		kept := filepath.Join(dir, "server-"+filepath.Base(log))
		if err := os.Rename(log, kept); err != nil {
			return nil, err
		}
		logs = append(logs, kept)
	}
	return logs, nil
}
