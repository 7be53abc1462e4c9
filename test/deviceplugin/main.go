// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Program deviceplugin is a device plugin for scenarios. A device is a name, which containers find in the environment
// variable DEVICES, and the device node /dev/<name>, which is /dev/null of the machine. The program ends when its socket
// is removed, so that it is started, and registers, again.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []string
}

func main() {
	dir := flag.String("dir", "/var/lib/kubelet/device-plugins", "directory of device plugins")
	resource := flag.String("resource", "example.com/device", "name of the resource")
	devices := flag.String("devices", "a,b", "names of the devices")
	flag.Parse()
	for {
		if err := run(*dir, *resource, strings.Split(*devices, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// run serves and registers the plugin until its socket is removed.
func run(dir, resource string, devices []string) error {
	path := filepath.Join(dir, "test.sock")
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, &plugin{devices: devices})
	go func() { _ = server.Serve(listener) }()
	if err := register(dir, resource, filepath.Base(path)); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(path); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func register(dir, resource, endpoint string) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource})
	return err
}

// GetDevicePluginOptions implements the API.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements the API.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	list := &api.ListAndWatchResponse{}
	for _, id := range p.devices {
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate implements the API.
func (p *plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		one := &api.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": strings.Join(c.DevicesIds, ",")}}
		for _, id := range c.DevicesIds {
			one.Devices = append(one.Devices, &api.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: "/dev/null", Permissions: "rw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, one)
	}
	return response, nil
}
