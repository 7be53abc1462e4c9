// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller is the driver's controller service. The ID of a volume or snapshot is its name.
type controller struct {
	csi.UnimplementedControllerServer
	state    *state
	topology *csi.Topology
	slots    int
	capacity int64
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// CreateVolume creates a volume, empty or with the data of a snapshot or another volume.
func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if filepath.Base(r.Name) != r.Name {
		return nil, status.Error(codes.InvalidArgument, "invalid name")
	}
	if err := checkParameters(r.MutableParameters); err != nil {
		return nil, err
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	v, err := c.state.volume(r.Name)
	if status.Code(err) == codes.NotFound {
		v, err = c.create(r)
	}
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.Name, CapacityBytes: v.Size, AccessibleTopology: []*csi.Topology{c.topology},
		VolumeContext: r.Parameters, ContentSource: r.VolumeContentSource,
	}}, nil
}

func (c *controller) create(r *csi.CreateVolumeRequest) (*volume, error) {
	size := r.GetCapacityRange().GetRequiredBytes()
	if size > c.available() {
		return nil, status.Error(codes.ResourceExhausted, "not enough space")
	}
	v := &volume{Size: size, Block: isBlock(r.VolumeCapabilities), Parameters: r.MutableParameters}
	source, err := c.source(r.VolumeContentSource, v.Block)
	if err != nil {
		return nil, err
	}
	data := c.state.volumeData(r.Name)
	if err := fill(data, source, v.Block); err != nil {
		return nil, err
	}
	if v.Block {
		err = os.Truncate(data, size)
	} else {
		err = os.Chmod(data, 0o777)
	}
	if err != nil {
		return nil, err
	}
	return v, write(c.state.volumePath(r.Name), v)
}

func isBlock(capabilities []*csi.VolumeCapability) bool {
	return slices.ContainsFunc(capabilities, func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
}

// source returns the data that a new volume is a copy of, or "".
func (c *controller) source(s *csi.VolumeContentSource, block bool) (data string, err error) {
	var isDevice bool
	switch {
	case s.GetSnapshot() != nil:
		id := s.GetSnapshot().SnapshotId
		of, err := c.state.snapshot(id)
		if err != nil {
			return "", err
		}
		data, isDevice = c.state.snapshotData(id), of.Block
	case s.GetVolume() != nil:
		id := s.GetVolume().VolumeId
		of, err := c.state.volume(id)
		if err != nil {
			return "", err
		}
		data, isDevice = c.state.volumeData(id), of.Block
	}
	if data != "" && isDevice != block {
		return "", status.Error(codes.InvalidArgument, "the source has another volume mode")
	}
	return data, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if filepath.Base(r.VolumeId) != r.VolumeId {
		return nil, status.Error(codes.InvalidArgument, "invalid volume")
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	if v, err := c.state.volume(r.VolumeId); err == nil && v.Node != "" {
		return nil, c.state.violation("DeleteVolume", r.VolumeId, "still attached")
	}
	return &csi.DeleteVolumeResponse{}, remove(c.state.volumePath(r.VolumeId), c.state.volumeData(r.VolumeId))
}

// ControllerPublishVolume attaches a volume to one node at a time.
func (c *controller) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	v, err := c.state.volume(r.VolumeId)
	if err != nil {
		return nil, err
	}
	response := &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"node": r.NodeId}}
	if v.Node == r.NodeId {
		return response, nil
	}
	if v.Node != "" {
		return nil, c.state.violation("ControllerPublishVolume", r.VolumeId, "attached to another node")
	}
	if err := c.checkSlots(r.NodeId); err != nil {
		return nil, err
	}
	v.Node = r.NodeId
	return response, write(c.state.volumePath(r.VolumeId), v)
}

// checkSlots refuses to attach more volumes than the node can have, and remembers how many that are.
func (c *controller) checkSlots(node string) error {
	count, err := c.state.attached(node)
	if err != nil || c.slots == 0 || count < c.slots {
		return err
	}
	if err := write(c.state.limitPath(), c.slots); err != nil {
		return err
	}
	return status.Error(codes.ResourceExhausted, "no free slot")
}

func (c *controller) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	response := &csi.ControllerUnpublishVolumeResponse{}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	v, err := c.state.volume(r.VolumeId)
	switch {
	case status.Code(err) == codes.NotFound:
		return response, nil
	case err != nil:
		return nil, err
	case v.Staged != "":
		return nil, c.state.violation("ControllerUnpublishVolume", r.VolumeId, "still staged")
	}
	v.Node = ""
	return response, write(c.state.volumePath(r.VolumeId), v)
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	v, err := c.state.volume(r.VolumeId)
	if err != nil {
		return nil, err
	}
	v.Size = max(v.Size, r.CapacityRange.RequiredBytes)
	if v.Block {
		if err := os.Truncate(c.state.volumeData(r.VolumeId), v.Size); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: true}, write(c.state.volumePath(r.VolumeId), v)
}

func (c *controller) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := checkParameters(r.MutableParameters); err != nil {
		return nil, err
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	v, err := c.state.volume(r.VolumeId)
	if err != nil {
		return nil, err
	}
	v.Parameters = r.MutableParameters
	return &csi.ControllerModifyVolumeResponse{}, write(c.state.volumePath(r.VolumeId), v)
}

// checkParameters returns why parameters are not supported. Those are mutable whose name is "speed".
func checkParameters(parameters map[string]string) error {
	for name := range parameters {
		if name != "speed" {
			return status.Error(codes.InvalidArgument, "unknown parameter "+name)
		}
	}
	return nil
}

func (c *controller) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return &csi.GetCapacityResponse{AvailableCapacity: c.available()}, nil
}

func (c *controller) available() int64 {
	if c.capacity == 0 {
		return math.MaxInt64
	}
	return c.capacity
}
