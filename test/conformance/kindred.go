// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kindred-project/kindred/test/conformance/suiteimages"
	"github.com/kindred-project/kindred/test/servers"
)

// cluster is a cluster for the suite to run against.
type cluster struct {
	kubeconfig string
	// dir is the working directory of a suite that needs one; env and flags are its own; see [suite].
	dir   string
	env   []string
	flags []string
	// load adds images to the node.
	load func(ctx context.Context, archives []suiteimages.Archive) error
	// hosts are the directories in which its runtimes look for mirrors of registries.
	hosts []string
	// mirror is the address of this machine on which such a mirror is reached by all of them.
	mirror netip.Addr
	// stop stops the cluster and removes everything that it left on the machine except its logs,
	// which it returns.
	stop func() (logs []string, err error)
}

// loopback is the address of a mirror for runtimes of this machine.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

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
	// second is a second real node; nil means that there is none.
	second *servers.SecondNode
	// members are further servers, which need a second node.
	members []*servers.Member
}

func (k kindred) start(ctx context.Context, dir string) (cluster, error) {
	up := servers.Kindred{Binary: k.binary, Env: k.env()}
	if k.simulated > 0 {
		up.Args = []string{"--no-node", "--simulated-nodes", strconv.Itoa(k.simulated)}
	}
	if k.second != nil {
		if err := k.second.Connect(); err != nil {
			return cluster{}, err
		}
		up.Args = []string{"--bind-address", k.second.HostAddress().String()}
	}
	if len(k.members) > 0 {
		up.Args = append(up.Args, "--etcd-embedded")
	}
	server, err := up.Start(ctx, dir)
	c := k.cluster(ctx, dir, server, err)
	if k.second == nil {
		return c, err
	}
	if err != nil {
		return c, errors.Join(err, k.second.Stop(context.WithoutCancel(ctx)))
	}
	c, err = k.withSecond(ctx, c, server, dir)
	if err != nil {
		return c, err
	}
	return k.withMembers(ctx, c, server, dir)
}

// withMembers starts the further servers of a cluster. The suite speaks with the last one, and the first one leads.
func (k kindred) withMembers(ctx context.Context, first cluster, server *servers.Server, dir string) (cluster, error) {
	if len(k.members) == 0 {
		return first, nil
	}
	all := first
	for _, m := range k.members {
		m.Kindred = filepath.Join(dir, "kindred")
		own := filepath.Join(dir, "server-"+strconv.Itoa(m.Number))
		if err := m.Start(ctx, server, own); err != nil {
			return all, err
		}
		before := all.stop
		all.stop = func() ([]string, error) {
			ended := m.CheckRunning()
			logs, err := before()
			return append(logs, filepath.Join(own, "kindred.log")), errors.Join(ended, m.Stop(), err, os.RemoveAll(m.Data()))
		}
	}
	config, err := clientcmd.LoadFromFile(first.kubeconfig)
	if err != nil {
		return all, err
	}
	for _, c := range config.Clusters {
		at, err := url.Parse(c.Server)
		if err != nil {
			return all, err
		}
		c.Server = k.members[len(k.members)-1].URL(at.Port())
	}
	all.kubeconfig = filepath.Join(dir, "kubeconfig")
	return all, clientcmd.WriteToFile(*config, all.kubeconfig)
}

// withSecond starts the second node of a cluster.
func (k kindred) withSecond(ctx context.Context, first cluster, server *servers.Server, dir string) (cluster, error) {
	k.second.Kindred, k.second.Env = filepath.Join(dir, "kindred"), k.env()
	second := filepath.Join(dir, "second")
	if err := k.second.Start(ctx, server, second); err != nil {
		return first, err
	}
	both := first
	both.hosts = append(first.hosts, filepath.Join(k.second.Data(), "containerd", "certs.d"))
	both.mirror = k.second.HostAddress()
	both.load = func(ctx context.Context, archives []suiteimages.Archive) error {
		return errors.Join(first.load(ctx, archives), k.second.Load(ctx, files(archives)))
	}
	both.stop = func() ([]string, error) {
		ended := k.second.CheckRunning()
		stopped := k.second.Stop(context.WithoutCancel(ctx))
		logs, err := first.stop()
		return append(logs, filepath.Join(second, "second-node.log")), errors.Join(ended, stopped, err)
	}
	return both, nil
}

// cluster returns the started cluster; failed is the error of its start.
func (k kindred) cluster(ctx context.Context, dir string, server *servers.Server, failed error) cluster {
	return cluster{
		kubeconfig: filepath.Join(dir, "data", "kubeconfig"),
		hosts:      []string{filepath.Join(dir, "data", "containerd", "certs.d")},
		mirror:     loopback,
		load: func(ctx context.Context, archives []suiteimages.Archive) error {
			if k.simulated > 0 {
				return nil // simulated nodes accept every image
			}
			return k.verb(ctx, dir, append([]string{"image", "load"}, files(archives)...)...)
		},
		stop: func() ([]string, error) {
			var ended error
			if failed == nil {
				ended = server.CheckRunning()
				server.Stop()
			}
			logs, err := k.keepLogs(dir)
			return logs, errors.Join(ended, err, k.verb(context.WithoutCancel(ctx), dir, "reset"))
		},
	}
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
