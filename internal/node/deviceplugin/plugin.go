// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kindred-project/kindred/internal/node/topology"
)

const (
	connectLimit = 10 * time.Second
	// allocateLimit is the timeout of a plugin's Allocate call. No other pod is admitted meanwhile.
	allocateLimit = 10 * time.Second
	// maxMessage is the size of the list of devices that a plugin may send.
	maxMessage = 16 << 20
)

// plugin is a connected plugin.
type plugin struct {
	resource, socket string
	conn             *grpc.ClientConn
	client           api.DevicePluginClient
	options          *api.DevicePluginOptions
	limit            time.Duration // of allocations
}

// connect connects to the plugin behind a socket.
func connect(ctx context.Context, resource, socket string) (*plugin, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	p := &plugin{resource: resource, socket: socket, conn: conn, client: api.NewDevicePluginClient(conn), limit: allocateLimit}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.WaitForReady(true)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	return p, nil
}

// watch passes on each list of devices, until the plugin is gone or ctx ends.
func (p *plugin) watch(ctx context.Context, received func(map[string]Device)) error {
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		devices := make(map[string]Device, len(list.Devices))
		for _, d := range list.Devices {
			one := Device{ID: d.ID, Healthy: d.Health == api.Healthy}
			for _, n := range d.GetTopology().GetNodes() {
				one.Nodes = one.Nodes.With(int(n.ID))
			}
			devices[d.ID] = one
		}
		received(devices)
	}
}

// preferred asks the plugin which devices it prefers, if it has preferences.
func (p *plugin) preferred(ctx context.Context, available, mustInclude []string, count int) ([]string, error) {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	response, err := p.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: mustInclude, AllocationSize: int32(count),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(response.ContainerResponses) == 0 {
		return nil, nil
	}
	return response.ContainerResponses[0].DeviceIDs, nil
}

// allocate has the plugin allocate devices, and returns what the container gets.
func (p *plugin) allocate(ctx context.Context, ids []string) (*api.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	response, err := p.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(response.ContainerResponses) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", response)
	}
	return response.ContainerResponses[0], nil
}

// preStart notifies the plugin that a container with these devices starts, if it wants that.
func (p *plugin) preStart(ctx context.Context, ids []string) error {
	if !p.options.GetPreStartRequired() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, api.KubeletPreStartContainerRPCTimeoutInSecs*time.Second)
	defer cancel()
	if _, err := p.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// known returns only the NUMA nodes that the machine has.
func known(devices map[string]Device, all topology.Mask) map[string]Device {
	for id, d := range devices {
		d.Nodes &= all
		devices[id] = d
	}
	return devices
}
