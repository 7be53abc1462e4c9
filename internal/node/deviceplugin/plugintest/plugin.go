// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugintest is a device plugin for tests.
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin is a device plugin of one resource.
type Plugin struct {
	api.UnimplementedDevicePluginServer
	Dir, Resource string
	Options       *api.DevicePluginOptions
	// Prefers are the devices that the plugin prefers.
	Prefers []string

	mu        sync.Mutex
	devices   []*api.Device
	changed   chan struct{}
	err       error
	hangs     bool
	hanging   chan struct{} // gets a value when an allocation begins to hang
	allocated [][]string
	started   [][]string
}

const socket = "plugin.sock"

// Serve serves the plugin, and returns the function that ends it.
func (p *Plugin) Serve(devices ...*api.Device) (stop func(), err error) {
	p.mu.Lock()
	p.devices, p.changed = devices, make(chan struct{})
	p.mu.Unlock()
	path := filepath.Join(p.Dir, socket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	return func() {
		server.Stop()
		<-done
	}, nil
}

// Register registers the plugin with the agent, whose socket may appear soon.
func (p *Plugin) Register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.Dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: p.Resource, Options: p.Options,
	}, grpc.WaitForReady(true))
	return err
}

// Set changes the devices.
func (p *Plugin) Set(devices ...*api.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

// Fail makes allocations and starts fail with err, until it is nil.
func (p *Plugin) Fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// Hang makes allocations hang until their caller or the plugin ends. The result gets a value when one does.
func (p *Plugin) Hang() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs, p.hanging = true, make(chan struct{}, 10)
	return p.hanging
}

// Allocated returns the devices of each allocation, and Started those of each start.
func (p *Plugin) Allocated() [][]string { return p.list(&p.allocated) }

// Started returns the devices of each start of a container.
func (p *Plugin) Started() [][]string { return p.list(&p.started) }

func (p *Plugin) list(calls *[][]string) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(*calls)
}

// GetDevicePluginOptions implements the API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	if p.Options == nil {
		return &api.DevicePluginOptions{}, nil
	}
	return p.Options, nil
}

// ListAndWatch implements the API.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// GetPreferredAllocation implements the API.
func (p *Plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: p.Prefers}}}, nil
}

// Allocate implements the API. Each container gets all that the API has.
func (p *Plugin) Allocate(ctx context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.mu.Lock()
	hangs, hanging := p.hangs, p.hanging
	p.mu.Unlock()
	if hangs {
		hanging <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	ids := r.ContainerRequests[0].DevicesIds
	if len(ids) == 0 {
		return nil, errors.New("no devices")
	}
	p.allocated = append(p.allocated, ids)
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{
		Envs:        map[string]string{"DEVICES": fmt.Sprint(ids)},
		Mounts:      []*api.Mount{{ContainerPath: "/in", HostPath: "/host", ReadOnly: true}},
		Devices:     []*api.DeviceSpec{{ContainerPath: "/dev/" + ids[0], HostPath: "/dev/null", Permissions: "rw"}},
		Annotations: map[string]string{"example.com/device": ids[0]},
		CdiDevices:  []*api.CDIDevice{{Name: "example.com/device=" + ids[0]}},
	}}}, nil
}

// PreStartContainer implements the API.
func (p *Plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, r.DevicesIds)
	return &api.PreStartContainerResponse{}, p.err
}
