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
	// tick and electionTicks are short because a single member always wins its election, and a start waits for it: from one to
	// electionTicks ticks, at random.
	tick          = 10 * time.Millisecond
	electionTicks = 3
	// quota is the size of the database at which etcd refuses writes.
	quota = 8 << 30
	// maxRequestBytes must exceed the largest object the API accepts, 3 MiB.
	maxRequestBytes = 4 << 20
)

// Embedded starts a single etcd member in the process, on the files in dir. It opens no
// sockets: the client calls the server's functions. It refuses a damaged store with a
// [check.Error] and a missing one with a [check.MissingError].
func Embedded(ctx context.Context, dir string, c clock.Clock, r Retention) (*Backend, error) {
	if err := checkBefore(ctx, dir); err != nil {
		return nil, err
	}
	return openEmbedded(ctx, dir, c, r)
}

// checkBefore checks the files of a store before etcd opens them. It skips a store that was
// never ready: beginBirth discards it.
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

// openEmbedded starts etcd on checked files.
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
	client := v3client.New(server)
	requests := &gate{KV: client.KV}
	client.KV = requests
	watcher, watchesEnded := newWatcher(server, client)
	client.Watcher = watcher
	b := newBackend(ctx, client, "embedded:"+dir, c, r, note)
	b.failed, b.dir = failed, dir
	b.stop = func() {
		requests.close()
		watchesEnded()
		server.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
		defer cancel()
		if err := check.NoteStop(ctx, dir, server.CommittedIndex(), c.Now()); err != nil {
			klog.ErrorS(err, "Cannot record the state of the store at its stop; the next start will decode each object instead")
		}
	}
	return b, nil
}

const (
	// noteLimit is the time that a stop may take to record the state of the store. A database of one
	// GiB takes about as long.
	noteLimit = time.Second
	// abandonAfter is the time that an interrupted start waits for etcd to close its files.
	abandonAfter = 1500 * time.Millisecond
)

// startServer opens etcd's files and starts it, in a goroutine of its own: etcd reports a fatal
// error by a panic, or by a log entry that blocks its goroutine (see failure).
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

// stallLimit is the time that etcd may be without work and still not ready. An election takes 0.2 s.
const stallLimit = 20 * time.Second

// awaitServer waits until etcd has applied its log. It fails after limit on a member that cannot
// be elected, or whose log is shorter than its database: it would never be ready, and log
// nothing.
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
				return unusable(dir, errors.New("etcd does not become ready: its membership is damaged, or its log is cut off"))
			}
		}
	}
}

// unusable is the error for a store that passed the check and that etcd cannot open.
func unusable(dir string, err error) error {
	return fmt.Errorf("open the store in %s: %w; \"kindred check-store\" says more; if it is damaged, restore it from a backup", dir, err)
}

// catchUpEntries is how many entries of the raft log etcd keeps in memory for members that are behind.
// The embedded etcd has one member, so one entry is enough. etcd's default, which 0 selects, is 5,000
// entries: the last 5,000 objects written.
const catchUpEntries = 1

func embeddedConfig(dir string, failed *failure) (config.ServerConfig, error) {
	// A member needs peer URLs for its identity. Nothing listens there.
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
		SnapshotCatchUpEntries:      catchUpEntries,
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
		// For uncached resources; the watch cache requests progress itself (KEP-2340).
		WatchProgressNotifyInterval: 5 * time.Second,
		DowngradeCheckTime:          defaults.DowngradeCheckTime,
		MaxLearners:                 defaults.MaxLearners,
		V2Deprecation:               defaults.V2DeprecationEffective(),
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, logger),
		Logger:                      logger,
	}, nil
}
