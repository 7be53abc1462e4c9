// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kindred-project/kindred/test/servers"
)

// side is a running control plane with simulated nodes: Kindred's or upstream's.
type side struct {
	name string
	*kubernetes.Clientset
	config *rest.Config
	// startTook is the time from the start of its first process until it and its nodes were ready.
	startTook time.Duration
	// processorTime returns the CPU time, and memory the resident memory in MB, of all its processes.
	processorTime func() time.Duration
	memory        func() (float64, error)
	// profiled runs a measurement and, if a profile was requested, lets Kindred profile itself meanwhile.
	profiled func(ctx context.Context, measured func() error) error
	stop     func()
}

// spending runs a measurement, and prints the processor time that the side and the benchmark use meanwhile. That depends less on what else the machine
// does than the elapsed time. What the benchmark uses is its clients', which no server can save, and upstream's simulated nodes.
func (s *side) spending(measured func() error) error {
	side, own := s.processorTime(), ownTime()
	if err := measured(); err != nil {
		return err
	}
	fmt.Printf("  %s used %.2f s of processor time, the benchmark %.2f s\n", s.name, (s.processorTime() - side).Seconds(), (ownTime() - own).Seconds())
	return nil
}

// ownTime returns the processor time that this process has used.
func ownTime() time.Duration {
	var used unix.Rusage
	// Cannot fail with these arguments (getrusage(2)).
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// starter starts a side with a number of simulated nodes.
type starter func(ctx context.Context, b *bench, nodes int) (*side, error)

// newClient returns a client with its own connection: a server closes the watches of a client that does not keep up, and a
// shared connection delays all of them.
func newClient(config *rest.Config) (*kubernetes.Clientset, error) {
	config = withOwnConnection(config)
	config.ContentType, config.Timeout, config.QPS = runtime.ContentTypeProtobuf, 0, -1
	return kubernetes.NewForConfig(config)
}

func startKindred(ctx context.Context, b *bench, nodes int) (*side, error) {
	c, client, err := b.startWithClient(ctx, "--no-node", "--simulated-nodes", strconv.Itoa(nodes))
	if err != nil {
		return nil, err
	}
	return &side{
		name: "Kindred", Clientset: client, config: c.config, startTook: c.startTook,
		processorTime: c.processorTime, memory: c.rss, profiled: c.profiled, stop: c.stop,
	}, nil
}

// unlimited are the flags of upstream's programs without a limit on their requests.
var unlimited = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

// startUpstream starts upstream's control plane, and its scheduler if it has nodes. Its controller manager deletes with as many
// workers as Kindred, and its nodes are simulated by this program, without heartbeats.
func startUpstream(ctx context.Context, b *bench, nodes int) (*side, error) {
	programs, err := servers.BuildControlPlane(ctx, "test/servers")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.scratch, "upstream")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	server, err := programs.Start(ctx, dir, true, append(unlimited, "--concurrent-gc-syncs=100", "--node-monitor-grace-period=1h")...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := sync.OnceFunc(func() {
		cancel()
		server.Stop()
	})
	if nodes > 0 {
		err = errors.Join(programs.Schedule(ctx, server, dir, unlimited...), startNodes(ctx, server.Config, nodes))
	}
	took := time.Since(began)
	client, clientErr := newClient(server.Config)
	if err = errors.Join(err, clientErr); err != nil {
		stop()
		return nil, err
	}
	return &side{
		name: "upstream", Clientset: client, config: server.Config, startTook: took,
		processorTime: server.ProcessorTime,
		memory:        func() (float64, error) { return residentMemory(server.PIDs()...) },
		profiled:      func(_ context.Context, measured func() error) error { return measured() },
		stop:          stop,
	}, nil
}
