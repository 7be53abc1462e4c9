// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"io"

	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/kindred-project/kindred/internal/storage/check"
)

// Snapshot returns the database as it is now, with a checksum at its end. A single member answers, with what it has applied.
func (b *Backend) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	content, err := b.client.Client.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd does not answer: %w", err)
	}
	return content, nil
}

// CheckSnapshot returns an error if a file is not a whole snapshot. It returns the number of keys.
func CheckSnapshot(file string) (keys int, err error) {
	status, err := etcdsnapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return 0, fmt.Errorf("the snapshot is damaged: %w", err)
	}
	return status.TotalKey, nil
}

// Restore makes the store of a single member from a snapshot, in a directory that does not exist. Watches of earlier states end, so
// that clients list again.
func Restore(dir, file string) error {
	peers := singlePeer
	err := etcdsnapshot.NewV3(zap.NewNop()).Restore(etcdsnapshot.RestoreConfig{
		SnapshotPath: file, Name: memberName, OutputDataDir: dir,
		PeerURLs: []string{peers}, InitialCluster: memberName + "=" + peers, InitialClusterToken: memberName,
		RevisionBump: check.RestoredRevisions, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restore the store in %s: %w", dir, err)
	}
	return nil
}
