// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Program csidriver is a CSI driver for scenarios: its volumes are directories, or loop devices of files, which
// upstream's sidecars create, attach, expand, modify, snapshot and copy through its controller service. Its node service is that of
// the node's unit tests. It registers on the node itself, because upstream's node-driver-registrar is not
// published as a module, nor is its csi-driver-host-path.
//
// What it does survives SIGKILL (state.go), and it refuses what the specification forbids (guard.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/kindred-project/kindred/internal/loop"
	"github.com/kindred-project/kindred/internal/node/csi/csitest"
)

// topologyKey is the label of the node that has the volumes.
const topologyKey = "topology.test.csi.example.com/node"

type options struct {
	name, node, endpoint, registry, data, dieIn string
	slots                                       int
	capacity                                    int64
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "test.csi.example.com", "name of the driver")
	flag.StringVar(&o.node, "node", "", "name of the node")
	flag.StringVar(&o.data, "data", "", "directory of the volumes")
	flag.StringVar(&o.endpoint, "endpoint", "", "socket of the driver")
	flag.StringVar(&o.registry, "registry", "", "the node agent's plugins_registry")
	flag.StringVar(&o.dieIn, "die-in", "", "a call, such as CreateVolume, after which the driver kills itself before it answers")
	flag.IntVar(&o.slots, "slots", 0, "number of volumes that can be attached; 0 is no limit. The node learns it after an attempt to attach more")
	flag.Int64Var(&o.capacity, "capacity", 0, "bytes available for new volumes; 0 is no limit")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o options) error {
	s, err := openState(o.data)
	if err != nil {
		return err
	}
	c := &controller{state: s, slots: o.slots, capacity: o.capacity, topology: &csi.Topology{Segments: map[string]string{topologyKey: o.node}}}
	d := csitest.NewDriver(o.name, o.endpoint, o.data)
	d.Device = loop.Attach
	d.Capabilities = append(d.Capabilities, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	volumes, err := s.volumes()
	if err != nil {
		return err
	}
	for id, v := range volumes {
		d.Restore(id, v.Staged, v.Published)
	}
	g := &guard{state: s, dieIn: o.dieIn, info: &csi.NodeGetInfoResponse{NodeId: o.node, AccessibleTopology: c.topology}}
	sockets := []string{o.endpoint, filepath.Join(o.registry, o.name+"-reg.sock")}
	for _, path := range sockets {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		server, err := d.Serve(path, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, &identity{name: o.name})
			csi.RegisterControllerServer(s, c)
		}, grpc.UnaryInterceptor(g.intercept))
		if err != nil {
			return err
		}
		defer server.Stop()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	<-ctx.Done()
	return nil
}
