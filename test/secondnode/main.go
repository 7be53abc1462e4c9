// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Secondnode is a node of a running cluster, with a data directory and a private containerd of its own. It is started in
// a network namespace that is to be its machine, until nodes can join in the product. It has the cluster's keys, and so
// issues its own certificates.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/auth/pki"
	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/machine"
	"github.com/kindred-project/kindred/internal/part"
)

type flags struct {
	cluster, dataDir, server, name, pods, services string
}

func main() {
	var f flags
	flag.StringVar(&f.cluster, "cluster", "", "the data directory of the cluster, for its keys")
	flag.StringVar(&f.dataDir, "data-dir", "", "the data directory of this node")
	flag.StringVar(&f.server, "server", "", "the URL of the cluster's API")
	flag.StringVar(&f.name, "name", "", "the name of the node")
	flag.StringVar(&f.pods, "pod-cidr", "", "the range of the node's pods")
	flag.StringVar(&f.services, "service-cidr", "", "the cluster's range of Services")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, f); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	cluster, err := datadir.New(f.cluster)
	if err != nil {
		return err
	}
	own, err := datadir.New(f.dataDir)
	if err != nil {
		return err
	}
	lock, err := own.Lock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	options, err := f.options(own)
	if err != nil {
		return err
	}
	node := machine.Prepare(ctx, options)
	keys, err := pki.Open(cluster.PKI(), clock.RealClock{})
	if err != nil {
		return err
	}
	api, err := access(ctx, keys, f.server)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	parts := part.NewGroup(func(err error) {
		select {
		case failed <- err:
		default:
		}
	})
	defer parts.Stop(clock.RealClock{}, 2*time.Second)
	if err := node.Join(ctx, api, parts); err != nil {
		return err
	}
	// Other verbs find the node's runtime by it.
	instance := datadir.Instance{PID: os.Getpid(), StartedAt: time.Now(), Server: f.server, NodeName: f.name, ContainerRuntime: node.Endpoint()}
	if err := own.WriteInstance(instance); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (f flags) options(own datadir.Layout) (machine.Options, error) {
	pods, err := netip.ParsePrefix(f.pods)
	if err != nil {
		return machine.Options{}, err
	}
	services, err := netip.ParsePrefix(f.services)
	if err != nil {
		return machine.Options{}, err
	}
	say := func(line string) { fmt.Println(line) }
	return machine.Options{
		Dir: own, Name: f.name, PodCIDRs: []netip.Prefix{pods}, ServiceCIDRs: []netip.Prefix{services},
		DNS: true, Clock: clock.RealClock{}, Step: say, Notice: say,
	}, nil
}

// access returns the node's access to the API over the network.
func access(ctx context.Context, keys *pki.PKI, server string) (machine.API, error) {
	configFor := func(as part.Identity) (*rest.Config, error) {
		// The API server adds the group of all authenticated users itself.
		groups := slices.DeleteFunc(slices.Clone(as.GetGroups()), func(g string) bool { return g == user.AllAuthenticated })
		pair, err := keys.Client(as.GetName(), groups...)
		if err != nil {
			return nil, err
		}
		return &rest.Config{
			Host: server, UserAgent: as.UserAgent(), QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{CAData: keys.Cluster.CertPEM, CertData: pair.CertPEM, KeyData: pair.KeyPEM},
		}, nil
	}
	// The parts of a node in the cluster's process share the informers of its API server, which may read everything.
	reader, err := configFor(part.Identity{Info: part.User("kindred:second-node", user.SystemPrivilegedGroup), Agent: part.NodeAgent})
	if err != nil {
		return machine.API{}, err
	}
	client, err := kubernetes.NewForConfig(reader)
	if err != nil {
		return machine.API{}, err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	return machine.API{
		ConfigFor: func(as part.Identity) *rest.Config {
			config, err := configFor(as)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return &rest.Config{Host: server} // requests without a certificate are refused
			}
			return config
		},
		Informers: shared, StartInformers: func() { shared.Start(ctx.Done()) },
		Keys: keys,
	}, nil
}
