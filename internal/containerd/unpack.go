// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"

	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	introspectionapi "github.com/containerd/containerd/api/services/introspection/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// containerd's CRI plugin unpacks an image only when the first container uses it, and once for each
// container if several start concurrently. Kindred therefore unpacks images when it imports them.

// usedSnapshotter returns the snapshotter of the CRI plugin: overlayfs, its default, if that works, else
// native. The configuration of a private containerd enables only one of them.
func usedSnapshotter(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	answer, err := introspectionapi.NewIntrospectionClient(conn).Plugins(ctx,
		&introspectionapi.PluginsRequest{Filters: []string{"type==io.containerd.snapshotter.v1"}})
	if err != nil {
		return "", err
	}
	works := map[string]bool{}
	for _, p := range answer.GetPlugins() {
		works[p.GetID()] = p.GetInitErr().GetCode() == 0
	}
	for _, name := range []string{"overlayfs", "native"} {
		if works[name] {
			return name, nil
		}
	}
	return "", errors.New("containerd has neither an overlayfs nor a native snapshotter")
}

// unpack applies layers to snapshots, which are named by the chain IDs.
func unpack(ctx context.Context, conn grpc.ClientConnInterface, snapshotter string, layers []v1.Descriptor, chain []string) error {
	if len(layers) != len(chain) {
		return fmt.Errorf("the image's manifest has %d layers, its config %d", len(layers), len(chain))
	}
	parent := ""
	for i, layer := range layers {
		if err := unpackLayer(ctx, conn, snapshotter, layer, parent, chain[i]); err != nil {
			return fmt.Errorf("unpacking layer %s: %w", layer.Digest, err)
		}
		parent = chain[i]
	}
	return nil
}

func unpackLayer(ctx context.Context, conn grpc.ClientConnInterface, snapshotter string, layer v1.Descriptor, parent, name string) error {
	snapshots := snapshotsapi.NewSnapshotsClient(conn)
	_, err := snapshots.Stat(ctx, &snapshotsapi.StatSnapshotRequest{Snapshotter: snapshotter, Key: name})
	if status.Code(err) != codes.NotFound {
		return err
	}
	key := "kindred-unpack-" + string(uuid.NewUUID())
	prepared, err := snapshots.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Snapshotter: snapshotter, Key: key, Parent: parent})
	if err != nil {
		return err
	}
	_, err = diffapi.NewDiffClient(conn).Apply(ctx, &diffapi.ApplyRequest{Diff: descriptor(layer), Mounts: prepared.GetMounts()})
	if err == nil {
		_, err = snapshots.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Snapshotter: snapshotter, Key: key, Name: name})
	}
	if err == nil {
		return nil
	}
	// If this fails, the snapshot expires with the lease.
	_, _ = snapshots.Remove(context.WithoutCancel(ctx), &snapshotsapi.RemoveSnapshotRequest{Snapshotter: snapshotter, Key: key})
	if status.Code(err) == codes.AlreadyExists {
		return nil // it was unpacked concurrently
	}
	return err
}
