// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package kindred

import (
	"context"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/cluster"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/join"
)

// JoinOptions configure a node of a cluster that runs elsewhere. DataDir is required; so are Server, Token and CAHash, unless this
// machine has joined before with the data directory.
type JoinOptions struct {
	// Server is the URL of the cluster's API, such as https://10.0.0.1:6443.
	Server string
	// Token is a bootstrap token of the cluster, and CAHash the hash of the key of its authority, sha256: and 64 hexadecimal
	// digits. "kindred token create" and "kubeadm token create --print-join-command" print them.
	Token, CAHash string
	// Wait limits the time that this machine waits for a server that does not answer, or does not know the token yet. If it is 0, the machine
	// does not wait.
	Wait time.Duration
	// NodeIP is as in Options; by default it is the address from which this machine reaches the server. PodNetwork is as in Options.
	NodeIP, PodNetwork string
	// NodeName is the name of the node; by default that with which it has joined, or the host name.
	NodeName string
	// LoadBalancerPools are the pools of the cluster's server whose addresses this machine announces as well.
	LoadBalancerPools []string
	// DataDir, KubeletDir, KubeletConfig, KubeletConfigDir and ContainerRuntimeEndpoint are as in Options.
	DataDir, KubeletDir, KubeletConfig, KubeletConfigDir, ContainerRuntimeEndpoint string
	// Flags is as in Options.
	Flags map[string]string
	// Version, Clock, Progress and Notice are as in Options.
	Version  string
	Clock    clock.WithTicker
	Progress func(step string, took time.Duration)
	Notice   func(line string)
}

// JoinNode makes this machine a node of a cluster that runs elsewhere, and returns when the node is ready. The cluster may be
// Kindred's or one that kubeadm has set up.
func JoinNode(ctx context.Context, options JoinOptions) (*Node, error) {
	config, invitation, err := options.resolve(ctx)
	if err != nil {
		return nil, err
	}
	running, err := cluster.JoinNode(ctx, config, invitation)
	if err != nil {
		return nil, err
	}
	return &Node{running}, nil
}

// AdmitNode gets this machine the certificate of a node with a token, and does not run it: JoinNode then needs no token.
func AdmitNode(ctx context.Context, options JoinOptions) error {
	config, invitation, err := options.resolve(ctx)
	if err != nil {
		return err
	}
	return cluster.AdmitNode(ctx, config, invitation)
}

// anyServices stands for the ranges of Services, which the cluster tells later.
const anyServices = DefaultServiceCIDR + ",fd00:10:96::/112"

// resolve checks the options.
func (o JoinOptions) resolve(ctx context.Context) (config cluster.Config, invitation join.Invitation, err error) {
	if invitation, err = o.invitation(); err != nil {
		return config, invitation, err
	}
	if o.NodeName == "" {
		if o.NodeName, err = joinedAs(o.DataDir); err != nil {
			return config, invitation, err
		}
	}
	config, err = Options{
		ServiceCIDR: anyServices, DataDir: o.DataDir, NodeName: o.NodeName, KubeletDir: o.KubeletDir, KubeletConfig: o.KubeletConfig, KubeletConfigDir: o.KubeletConfigDir,
		NodeIP: o.NodeIP, PodNetwork: o.PodNetwork, LoadBalancerPools: o.LoadBalancerPools, ContainerRuntimeEndpoint: o.ContainerRuntimeEndpoint, Flags: o.Flags,
		Version: o.Version, Clock: o.Clock, Progress: o.Progress, Notice: o.Notice,
	}.resolve(ctx)
	return config, invitation, err
}

// joinedAs returns the name with which this machine has joined a cluster; "" if it has not.
func joinedAs(dataDir string) (string, error) {
	layout, err := datadir.New(dataDir)
	if err != nil {
		return "", invalid("%v", err)
	}
	member, err := join.ReadMembership(layout.Membership())
	return member.Node, err
}

// invitation returns what the options say about the cluster; an empty one if they say nothing.
func (o JoinOptions) invitation() (join.Invitation, error) {
	i, err := invitationOf(o.Server, o.Token, o.CAHash)
	if err == nil && o.Wait < 0 {
		err = invalid("the time to wait is negative: %v", o.Wait)
	}
	i.Wait = o.Wait
	return i, err
}

func invitationOf(server, token, caHash string) (join.Invitation, error) {
	i := join.Invitation{Server: strings.TrimSuffix(server, "/"), Token: token, Hash: caHash}
	if i.Server != "" {
		if u, err := url.Parse(i.Server); err != nil || u.Scheme != "https" || u.Host == "" {
			return i, invalid("server %q is not a URL such as https://10.0.0.1:6443", i.Server)
		}
	}
	switch {
	case (i.Token == "") != (i.Hash == ""):
		return i, invalid("a token and the hash of the cluster's authority are needed together, and only one of them is given")
	case i.Token != "" && i.Server == "":
		return i, invalid("a token is given, but no server")
	}
	return i, nil
}

// AdmitServer gets this machine the keys of the cluster that it is to join as a server, with a token, and does not run it: Start then
// needs no token. Options that name no cluster to join change nothing.
func AdmitServer(ctx context.Context, options Options) error {
	config, err := options.resolve(ctx)
	if err != nil {
		return err
	}
	return cluster.AdmitServer(ctx, config)
}

// joins sets what admits this machine as a server of a cluster.
func (o Options) joins(config *cluster.Config) error {
	invitation, err := invitationOf(o.Join, o.JoinToken, o.JoinCAHash)
	switch {
	case err != nil:
		return err
	case o.Join == "" && o.JoinKey != "":
		return invalid("a certificate key is given, but no server")
	case o.Join != "" && len(o.EtcdServers) == 0 && len(o.JoinEtcd) == 0:
		return invalid("a server that joins a cluster uses that cluster's etcd, or joins it, and neither etcd servers nor members to join are given")
	case len(o.EtcdServers) > 0 && (o.EtcdEmbedded || len(o.JoinEtcd) > 0):
		return invalid("etcd servers are given, and an embedded etcd as well")
	case o.Join != "" && o.Authorities != "":
		return invalid("a server to join is given, which has the keys of the cluster, and a directory with keys as well")
	case len(o.JoinEtcd) > 0 && o.Join == "" && o.Authorities == "":
		return invalid("members of an etcd cluster to join are given, but no server of its Kubernetes cluster, which has the keys, and no directory with them")
	}
	for _, member := range o.JoinEtcd {
		if u, err := url.Parse(member); err != nil || u.Scheme != "https" || u.Host == "" {
			return invalid("etcd member %q is not a URL such as https://10.0.0.1:2379", member)
		}
	}
	config.Join = join.ServerInvitation{Invitation: invitation, Key: o.JoinKey}
	config.Authorities = o.Authorities
	config.EtcdMember, config.JoinEtcd = o.EtcdEmbedded || len(o.JoinEtcd) > 0, o.JoinEtcd
	return nil
}
