// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csitest has a CSI driver for tests. It keeps its volumes as directories and bind-mounts them, and
// refuses what the specification forbids: to unstage a volume that is published, or to publish one that is
// not staged.
package csitest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a driver with its node service.
type Driver struct {
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer

	Name     string
	Endpoint string
	// Data has a directory for each volume, which exists.
	Data string
	Info *csi.NodeGetInfoResponse
	// Capabilities are those of the node service.
	Capabilities []csi.NodeServiceCapability_RPC_Type
	// Device returns the device of a block volume's file; if nil, the file itself is published.
	Device func(file string) (string, error)
	// Before is called before each call that changes something. If it fails, so does the call. After is the
	// same after the call was carried out.
	Before, After func(call string) error

	mu         sync.Mutex
	calls      []string
	staged     map[string]string          // by volume
	published  map[string]map[string]bool // targets by volume
	requests   []any
	registered *registerapi.RegistrationStatus
	server     *grpc.Server
}

// NewDriver returns a driver that stages volumes, whose directories are in data.
func NewDriver(name, endpoint, data string) *Driver {
	return &Driver{
		Name: name, Endpoint: endpoint, Data: data,
		Info:         &csi.NodeGetInfoResponse{NodeId: "node-id"},
		Capabilities: []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		staged:       map[string]string{}, published: map[string]map[string]bool{},
	}
}

// Serve serves the driver and its registration at a socket. more adds other services.
func (d *Driver) Serve(path string, more func(*grpc.Server), options ...grpc.ServerOption) (*grpc.Server, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(options...)
	csi.RegisterNodeServer(server, d)
	registerapi.RegisterRegistrationServer(server, d)
	if more != nil {
		more(server)
	}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// Took returns the calls since its last call.
func (d *Driver) Took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// Requests returns all requests of calls that change something.
func (d *Driver) Requests() []any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests
}

// Left returns what is staged or published.
func (d *Driver) Left() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.staged) == 0 && len(d.published) == 0 {
		return ""
	}
	return fmt.Sprintf("staged %v, published %v", d.staged, d.published)
}

// Restore makes a new driver continue where another one ended, which had staged and published a volume.
func (d *Driver) Restore(volume, staged string, published []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if staged != "" {
		d.staged[volume] = staged
	}
	for _, target := range published {
		d.publish(volume, target)
	}
}

func (d *Driver) publish(volume, target string) {
	if d.published[volume] == nil {
		d.published[volume] = map[string]bool{}
	}
	d.published[volume][target] = true
}

// Registered returns what the agent last said of the registration.
func (d *Driver) Registered() *registerapi.RegistrationStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.registered
}

// GetInfo implements registration.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: d.Name, Endpoint: d.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registration.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered = s
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodeGetInfo implements csi.NodeServer.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Info, nil
}

// SetInfo changes the answer of NodeGetInfo.
func (d *Driver) SetInfo(info *csi.NodeGetInfoResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Info = info
}

// NodeGetCapabilities implements csi.NodeServer.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range d.Capabilities {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// call runs one call that changes something.
func (d *Driver) call(name, volume string, request any, do func() error) error {
	if d.Before != nil {
		if err := d.Before(name); err != nil {
			return err
		}
	}
	d.mu.Lock()
	d.calls = append(d.calls, name+" "+volume)
	d.requests = append(d.requests, request)
	err := do()
	d.mu.Unlock()
	if err == nil && d.After != nil {
		err = d.After(name)
	}
	return err
}

func (d *Driver) stages() bool {
	return len(d.Capabilities) > 0 && d.Capabilities[0] == csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
}

// NodeStageVolume implements csi.NodeServer.
func (d *Driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, d.call("Stage", r.VolumeId, r, func() error {
		if _, err := os.Stat(filepath.Join(d.Data, r.VolumeId)); err != nil {
			return status.Error(codes.NotFound, "no such volume")
		}
		d.staged[r.VolumeId] = r.StagingTargetPath
		if r.VolumeCapability.GetBlock() != nil {
			return nil
		}
		return bind(filepath.Join(d.Data, r.VolumeId), r.StagingTargetPath)
	})
}

// NodeUnstageVolume implements csi.NodeServer.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, d.call("Unstage", r.VolumeId, r, func() error {
		if len(d.published[r.VolumeId]) > 0 {
			return status.Error(codes.FailedPrecondition, "still published")
		}
		delete(d.staged, r.VolumeId)
		return unbind(r.StagingTargetPath)
	})
}

// NodePublishVolume implements csi.NodeServer.
func (d *Driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, d.call("Publish", r.VolumeId, r, func() error {
		source, data := r.StagingTargetPath, filepath.Join(d.Data, r.VolumeId)
		switch {
		case d.stages() && source == "" || source != "" && d.staged[r.VolumeId] != source:
			return status.Error(codes.FailedPrecondition, "not staged")
		case r.VolumeCapability.GetBlock() != nil && d.Device != nil:
			device, err := d.Device(data)
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			source = device
		case source == "" || r.VolumeCapability.GetBlock() != nil:
			source = data
		}
		d.publish(r.VolumeId, r.TargetPath)
		return bind(source, r.TargetPath)
	})
}

// NodeUnpublishVolume implements csi.NodeServer.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.call("Unpublish", r.VolumeId, r, func() error {
		delete(d.published[r.VolumeId], r.TargetPath)
		if len(d.published[r.VolumeId]) == 0 {
			delete(d.published, r.VolumeId)
		}
		if err := unbind(r.TargetPath); err != nil {
			return err
		}
		return os.RemoveAll(r.TargetPath)
	})
}

// NodeExpandVolume implements csi.NodeServer.
func (d *Driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.CapacityRange.RequiredBytes},
		d.call("Expand", r.VolumeId, r, func() error { return nil })
}

// bind bind-mounts a directory or file, unless it is mounted.
func bind(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if mounted, err := mountinfo.Mounted(target); err == nil && mounted {
		return nil
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func unbind(target string) error {
	err := unix.Unmount(target, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
