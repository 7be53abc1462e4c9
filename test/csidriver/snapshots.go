// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot copies the data of a volume.
func (c *controller) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if filepath.Base(r.Name) != r.Name {
		return nil, status.Error(codes.InvalidArgument, "invalid name")
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	s, err := c.state.snapshot(r.Name)
	if status.Code(err) == codes.NotFound {
		s, err = c.copy(r.Name, r.SourceVolumeId)
	}
	if err != nil {
		return nil, err
	}
	if s.Source != r.SourceVolumeId {
		return nil, status.Error(codes.AlreadyExists, "a snapshot of another volume")
	}
	return &csi.CreateSnapshotResponse{Snapshot: describe(r.Name, s)}, nil
}

func (c *controller) copy(id, source string) (*snapshot, error) {
	v, err := c.state.volume(source)
	if err != nil {
		return nil, err
	}
	if err := fill(c.state.snapshotData(id), c.state.volumeData(source), v.Block); err != nil {
		return nil, err
	}
	s := &snapshot{Source: source, Size: v.Size, Block: v.Block, Created: timestamppb.Now()}
	return s, write(c.state.snapshotPath(id), s)
}

func (c *controller) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if filepath.Base(r.SnapshotId) != r.SnapshotId {
		return nil, status.Error(codes.InvalidArgument, "invalid snapshot")
	}
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	return &csi.DeleteSnapshotResponse{}, remove(c.state.snapshotPath(r.SnapshotId), c.state.snapshotData(r.SnapshotId))
}

func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	paths, err := filepath.Glob(c.state.snapshotPath("*"))
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{}
	for _, path := range paths {
		id := strings.TrimSuffix(filepath.Base(path), ".json")
		s, err := c.state.snapshot(id)
		if err != nil {
			return nil, err
		}
		if (r.SnapshotId == "" || r.SnapshotId == id) && (r.SourceVolumeId == "" || r.SourceVolumeId == s.Source) {
			response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: describe(id, s)})
		}
	}
	return response, nil
}

func describe(id string, s *snapshot) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: id, SourceVolumeId: s.Source, SizeBytes: s.Size, CreationTime: s.Created, ReadyToUse: true}
}
