// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Program csidriver is a CSI driver for scenarios: its volumes are directories, which upstream's
// external-provisioner creates through its controller service. Its node service is that of the node's unit
// tests. It registers on the node itself, because upstream's node-driver-registrar is not published as a
// module, nor is its csi-driver-host-path.
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/kindred-project/kindred/internal/node/csi/csitest"
)

// topologyKey is the label of the node that has the volumes.
const topologyKey = "topology.test.csi.example.com/node"

func main() {
	name := flag.String("name", "test.csi.example.com", "name of the driver")
	node := flag.String("node", "", "name of the node")
	data := flag.String("data", "", "directory of the volumes")
	endpoint := flag.String("endpoint", "", "socket of the driver")
	registry := flag.String("registry", "", "the node agent's plugins_registry")
	flag.Parse()
	if err := run(*name, *node, *data, *endpoint, *registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name, node, data, endpoint, registry string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	topology := &csi.Topology{Segments: map[string]string{topologyKey: node}}
	d := csitest.NewDriver(name, endpoint, data)
	d.Info = &csi.NodeGetInfoResponse{NodeId: node, AccessibleTopology: topology}
	sockets := []string{endpoint, filepath.Join(registry, name+"-reg.sock")}
	for _, path := range sockets {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		server, err := d.Serve(path, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, &identity{name: name})
			csi.RegisterControllerServer(s, &controller{data: data, topology: topology})
		})
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

// identity is the driver's identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	name string
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "1"}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, c := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: c}},
		})
	}
	return response, nil
}

// controller creates and deletes volumes.
type controller struct {
	csi.UnimplementedControllerServer
	data     string
	topology *csi.Topology
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		}},
	}}}, nil
}

// CreateVolume creates a directory with the volume's name, which is also its ID.
func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if filepath.Base(r.Name) != r.Name {
		return nil, status.Error(codes.InvalidArgument, "invalid name")
	}
	if err := os.MkdirAll(filepath.Join(c.data, r.Name), 0o777); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.Name, CapacityBytes: r.GetCapacityRange().GetRequiredBytes(),
		AccessibleTopology: []*csi.Topology{c.topology}, VolumeContext: r.Parameters,
	}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if filepath.Base(r.VolumeId) != r.VolumeId {
		return nil, status.Error(codes.InvalidArgument, "invalid volume")
	}
	if err := os.RemoveAll(filepath.Join(c.data, r.VolumeId)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}
