// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
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
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/storage/check"
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
// It opens no sockets: the client calls the server's functions. A store that is damaged is
// refused with a [check.Error], and one that is gone with a [check.MissingError].
func Embedded(ctx context.Context, dir string, c clock.Clock, r Retention) (*Backend, error) {
	if err := checkBefore(ctx, dir); err != nil {
		return nil, err
	}
	return openEmbedded(ctx, dir, c, r)
}

// checkBefore checks the files of a store before etcd trusts them. A store that was never
// ready is begun again, whatever is in it.
func checkBefore(ctx context.Context, dir string) error {
	if err := check.Missing(dir); err != nil {
		return err
	}
	unfinished, err := exists(birthMark(dir))
	if err != nil || unfinished {
		return err
	}
	if there, err := check.Exists(dir); !there || err != nil {
		return err
	}
	report, err := check.Store(ctx, dir, false)
	if err != nil {
		return fmt.Errorf("check the store in %s: %w", dir, err)
	}
	if len(report.Damage) > 0 {
		return &check.Error{Dir: dir, Report: report}
	}
	return nil
}

// openEmbedded starts etcd on files that were checked.
func openEmbedded(ctx context.Context, dir string, c clock.Clock, r Retention) (*Backend, error) {
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
	server, err := startServer(ctx, conf, failed)
	if err != nil {
		return nil, err
	}
	if err := awaitServer(ctx, server, failed, stallLimit); err != nil {
		return nil, err
	}
	err = endBirth(dir)
	if err == nil {
		err = check.Note(dir, server.CommittedIndex(), c.Now())
	}
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("prepare the store in %s: %w", dir, err)
	}
	note := func(context.Context) error { return check.Note(dir, server.CommittedIndex(), c.Now()) }
	b := newBackend(ctx, v3client.New(server), "embedded:"+dir, c, r, note)
	b.failed, b.dir = failed, dir
	b.stop = func() {
		server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
		defer cancel()
		if err := check.NoteStop(ctx, dir, server.CommittedIndex(), c.Now()); err != nil {
			klog.ErrorS(err, "The state of the store at its stop was not recorded; the next start checks each object instead")
		}
	}
	return b, nil
}

const (
	// noteLimit is how long a stop may take to record what it left: about as long as a gibibyte
	// takes.
	noteLimit = time.Second
	// abandonAfter is how long an interrupted start waits for etcd to let go of its files.
	abandonAfter = 1500 * time.Millisecond
)

// startServer opens etcd's files and starts it. etcd reports what it can't go on with by
// ending the process, by a panic, or by holding the goroutine that asked (see failure): so a
// goroutine of its own asks.
func startServer(ctx context.Context, conf config.ServerConfig, failed *failure) (*etcdserver.EtcdServer, error) {
	type opened struct {
		server *etcdserver.EtcdServer
		err    error
	}
	done := make(chan opened, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- opened{err: unusable(conf.DataDir, fmt.Errorf("%v", r))}
			}
		}()
		server, err := etcdserver.NewServer(conf)
		if err != nil {
			done <- opened{err: unusable(conf.DataDir, err)}
			return
		}
		server.Start()
		done <- opened{server: server}
	}()
	select {
	case o := <-done:
		return o.server, o.err
	case err := <-failed.reported:
		return nil, unusable(conf.DataDir, err)
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		if o.server != nil {
			o.server.Stop()
		}
	case <-failed.reported:
	case <-clock.RealClock{}.After(abandonAfter):
	}
	return nil, ctx.Err()
}

// stallLimit is how long etcd may have nothing left to apply and still not be ready; it takes
// 0.2 s to elect itself and to say so.
const stallLimit = 20 * time.Second

// awaitServer waits until etcd has applied its log. A member that can't be elected, or whose
// log is shorter than its database, would never be ready and say nothing.
func awaitServer(ctx context.Context, server *etcdserver.EtcdServer, failed *failure, limit time.Duration) error {
	dir := server.Cfg.DataDir
	ticker := clock.RealClock{}.NewTicker(limit)
	defer ticker.Stop()
	for {
		select {
		case <-server.ReadyNotify():
			return nil
		case err := <-failed.reported:
			return unusable(dir, err)
		case <-ctx.Done():
			server.Stop()
			return ctx.Err()
		case <-ticker.C():
			if server.AppliedIndex() >= server.CommittedIndex() {
				return unusable(dir, errors.New("etcd does not get ready: its membership is damaged, or its log is cut"))
			}
		}
	}
}

// unusable is the refusal of a store that only etcd found something wrong with.
func unusable(dir string, err error) error {
	return fmt.Errorf("open the store in %s: %w; \"kindred check-store\" says more; if it is damaged, restore it from a backup", dir, err)
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
