// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/features"
	"k8s.io/utils/clock"
)

const (
	memberName = "kindred"
	// tick and electionTicks are short because a single member waits for an
	// election that it always wins: they decide half of the start-up time.
	tick          = 10 * time.Millisecond
	electionTicks = 10
	// quota is how large the database may grow before etcd refuses writes.
	quota = 8 << 30
	// maxRequestBytes must exceed the largest object the API accepts, 3 MiB.
	maxRequestBytes = 4 << 20
)

// Embedded starts a single etcd member inside the process, on the files in dir.
// It opens no sockets: the client calls the server's functions.
func Embedded(ctx context.Context, dir string, c clock.Clock, r Retention) (*Backend, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the store's directory: %w", err)
	}
	if err := beginBirth(dir); err != nil {
		return nil, fmt.Errorf("prepare the store in %s: %w", dir, err)
	}
	failed := newFailure()
	conf, err := embeddedConfig(dir, failed)
	if err != nil {
		return nil, err
	}
	server, err := etcdserver.NewServer(conf)
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	server.Start()
	select {
	case <-server.ReadyNotify():
	case err := <-failed.reported:
		return nil, err
	case <-ctx.Done():
		server.Stop()
		return nil, ctx.Err()
	}
	if err := endBirth(dir); err != nil {
		server.Stop()
		return nil, fmt.Errorf("prepare the store in %s: %w", dir, err)
	}
	b := newBackend(ctx, v3client.New(server), "embedded:"+dir, c, r)
	b.stop = server.Stop
	b.failed = failed
	return b, nil
}

func embeddedConfig(dir string, failed *failure) (config.ServerConfig, error) {
	// A member needs peer URLs for its identity; nobody listens there.
	peers, err := types.NewURLs([]string{"http://kindred.invalid:2380"})
	if err != nil {
		return config.ServerConfig{}, err
	}
	defaults := embed.NewConfig()
	logger := newLogger(filepath.Join(dir, "etcd.log"), failed)
	return config.ServerConfig{
		Name:                        memberName,
		DataDir:                     dir,
		ClientURLs:                  types.URLs([]url.URL(peers)),
		PeerURLs:                    peers,
		InitialPeerURLsMap:          types.URLsMap{memberName: peers},
		InitialClusterToken:         memberName,
		NewCluster:                  true,
		TickMs:                      uint(tick.Milliseconds()),
		ElectionTicks:               electionTicks,
		InitialElectionTickAdvance:  true,
		SnapshotCount:               defaults.SnapshotCount,
		SnapshotCatchUpEntries:      defaults.SnapshotCatchUpEntries,
		MaxSnapFiles:                defaults.MaxSnapFiles,
		MaxWALFiles:                 defaults.MaxWalFiles,
		MaxTxnOps:                   defaults.MaxTxnOps,
		MaxRequestBytes:             maxRequestBytes,
		MaxConcurrentStreams:        defaults.MaxConcurrentStreams,
		QuotaBackendBytes:           quota,
		BackendFreelistType:         bolt.FreelistMapType,
		StrictReconfigCheck:         true,
		PreVote:                     true,
		AuthToken:                   "simple",
		TokenTTL:                    defaults.AuthTokenTTL,
		WarningApplyDuration:        time.Second,
		WarningUnaryRequestDuration: time.Second,
		// The watch cache asks for progress itself (KEP-2340); this is for the
		// resources that are not cached.
		WatchProgressNotifyInterval: 5 * time.Second,
		DowngradeCheckTime:          defaults.DowngradeCheckTime,
		MaxLearners:                 defaults.MaxLearners,
		V2Deprecation:               defaults.V2DeprecationEffective(),
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, logger),
		Logger:                      logger,
	}, nil
}
