// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kindred-project/kindred/internal/loop"
)

// guard sees all calls. It keeps track of what is staged, and kills the driver in the call that was asked for.
type guard struct {
	state *state
	dieIn string
	info  *csi.NodeGetInfoResponse
}

func (g *guard) intercept(ctx context.Context, request any, server *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := g.before(request); err != nil {
		return nil, err
	}
	response, err := handle(ctx, request)
	if err == nil {
		response, err = g.after(request, response)
	}
	if err == nil && path.Base(server.FullMethod) == g.dieIn {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return response, err
}

// before refuses to stage a volume that is not attached. Volumes that were made by hand are not attached.
func (g *guard) before(request any) error {
	r, ok := request.(*csi.NodeStageVolumeRequest)
	if !ok || r.PublishContext == nil {
		return nil
	}
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	v, err := g.state.volume(r.VolumeId)
	if err != nil {
		return err
	}
	if v.Node != r.PublishContext["node"] {
		return g.state.violation("NodeStageVolume", r.VolumeId, "not attached")
	}
	return nil
}

func (g *guard) after(request, response any) (any, error) {
	switch r := request.(type) {
	case *csi.NodeStageVolumeRequest:
		return response, g.change(r.VolumeId, func(v *volume) { v.Staged = r.StagingTargetPath })
	case *csi.NodeUnstageVolumeRequest:
		if err := detach(g.state.volumeData(r.VolumeId)); err != nil {
			return nil, err
		}
		return response, g.change(r.VolumeId, func(v *volume) { v.Staged = "" })
	case *csi.NodeExpandVolumeRequest:
		return response, loop.Grow(g.state.volumeData(r.VolumeId))
	case *csi.NodePublishVolumeRequest:
		return response, g.change(r.VolumeId, func(v *volume) {
			if !slices.Contains(v.Published, r.TargetPath) {
				v.Published = append(v.Published, r.TargetPath)
			}
		})
	case *csi.NodeUnpublishVolumeRequest:
		return response, g.change(r.VolumeId, func(v *volume) {
			v.Published = slices.DeleteFunc(v.Published, func(path string) bool { return path == r.TargetPath })
		})
	case *csi.NodeGetInfoRequest:
		return g.node()
	}
	return response, nil
}

// detach detaches the loop device of a volume, if it has one.
func detach(data string) error {
	device, err := loop.Find(data)
	if device == "" || err != nil {
		return err
	}
	return loop.Detach(device)
}

// change changes the state of a volume. One that was made by hand has none.
func (g *guard) change(id string, change func(*volume)) error {
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	v, err := g.state.volume(id)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	change(v)
	return write(g.state.volumePath(id), v)
}

// node describes the node. Its number of volumes is known once the driver has refused to attach one more.
func (g *guard) node() (*csi.NodeGetInfoResponse, error) {
	g.state.mu.Lock()
	defer g.state.mu.Unlock()
	info := &csi.NodeGetInfoResponse{NodeId: g.info.NodeId, AccessibleTopology: g.info.AccessibleTopology}
	err := read(g.state.limitPath(), &info.MaxVolumesPerNode)
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	return info, err
}
