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
	return EmbeddedMember(ctx, dir, nil, c, r)
}

// EmbeddedMember is Embedded with an etcd that is one member of a cluster, unless that is nil.
func EmbeddedMember(ctx context.Context, dir string, member *Member, c clock.Clock, r Retention) (*Backend, error) {
	if err := checkBefore(ctx, dir); err != nil {
		return nil, err
	}
	return openEmbedded(ctx, dir, member, c, r)
}

// instance is a running etcd.
type instance struct {
	server *etcdserver.EtcdServer
	stop   func()
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
func openEmbedded(ctx context.Context, dir string, member *Member, c clock.Clock, r Retention) (*Backend, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the store's directory: %w", err)
	}
	if err := beginBirth(dir); err != nil {
		return nil, fmt.Errorf("prepare the store in %s: %w", dir, err)
	}
	failed := newFailure()
	launch := alone
	if member != nil {
		launch = member.launch
	}
	running, err := startServer(ctx, dir, launch, failed)
	if err != nil {
		return nil, err
	}
	server := running.server
	if err := awaitServer(ctx, running, member, failed, stallLimit); err != nil {
		return nil, err
	}
	err = endBirth(dir)
	if err == nil {
		err = check.Note(dir, server.CommittedIndex(), c.Now())
	}
	if err == nil && member != nil {
		err = member.settle(ctx, server)
	}
	if err != nil {
		running.stop()
		return nil, fmt.Errorf("prepare the store in %s: %w", dir, err)
	}
	note := func(context.Context) error { return check.Note(dir, server.CommittedIndex(), c.Now()) }
	client := v3client.New(server)
	requests := &gate{KV: client.KV, alone: member == nil}
	client.KV = requests
	watcher, watchesEnded := newWatcher(server, client, requests.received)
	client.Watcher = watcher
	b := newBackend(ctx, client, "embedded:"+dir, c, r, note)
	b.failed, b.dir, b.shared = failed, dir, member != nil
	b.stop = func() {
		requests.close()
		watchesEnded()
		running.stop()
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

// alone starts an etcd that is the only member and opens no sockets.
func alone(_ context.Context, dir string, failed *failure) (instance, error) {
	conf, err := embeddedConfig(dir, failed)
	if err != nil {
		return instance{}, err
	}
	server, err := etcdserver.NewServer(conf)
	if err != nil {
		return instance{}, unusable(dir, err)
	}
	if others := len(server.Cluster().Members()) - 1; others > 0 {
		server.Cleanup()
		return instance{}, fmt.Errorf("the store in %s is one of %d members of an etcd cluster: start it with --etcd-embedded", dir, others+1)
	}
	server.Start()
	return instance{server, server.Stop}, nil
}

// startServer opens etcd's files and starts it, in a goroutine of its own: etcd reports a fatal
// error by a panic, or by a log entry that blocks its goroutine (see failure).
func startServer(ctx context.Context, dir string, launch func(context.Context, string, *failure) (instance, error), failed *failure) (instance, error) {
	type opened struct {
		instance
		err error
	}
	done := make(chan opened, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- opened{err: unusable(dir, fmt.Errorf("%v", r))}
			}
		}()
		running, err := launch(ctx, dir, failed)
		done <- opened{running, err}
	}()
	select {
	case o := <-done:
		return o.instance, o.err
	case err := <-failed.reported:
		return instance{}, unusable(dir, err)
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		if o.server != nil {
			o.stop()
		}
	case <-failed.reported:
	case <-clock.RealClock{}.After(abandonAfter):
	}
	return instance{}, ctx.Err()
}

// stallLimit is the time that etcd may be without work and still not ready. An election takes 0.2 s.
const stallLimit = 20 * time.Second

// awaitServer waits until etcd has applied its log, so that reads find all that was acknowledged before (see gate). It fails after limit on a single member that cannot
// be elected, or whose log is shorter than its database: it would never be ready, and log
// nothing. A member of a cluster waits for the others.
func awaitServer(ctx context.Context, running instance, member *Member, failed *failure, limit time.Duration) error {
	server := running.server
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
			running.stop()
			return ctx.Err()
		case <-ticker.C():
			stalled := server.AppliedIndex() >= server.CommittedIndex()
			switch {
			case stalled && member != nil && len(server.Cluster().Members()) > 1:
				member.Waiting(fmt.Sprintf("etcd waits for a majority of its %d members", len(server.Cluster().Members())))
			case stalled:
				return unusable(dir, errors.New("etcd does not become ready: its membership is damaged, or its log is cut off"))
			}
		}
	}
}

// unusable is the error for a store that passed the check and that etcd cannot open.
func unusable(dir string, err error) error {
	return fmt.Errorf("open the store in %s: %w; \"kindred check-store\" says more; if it is damaged, restore it from a backup", dir, err)
}

// singlePeer is the peer URL of a single member, which needs one for its identity. Nothing listens there.
const singlePeer = "http://kindred.invalid:2380"

// progressInterval is the interval of progress notifications to watches.
const progressInterval = 5 * time.Second

// catchUpEntries is how many entries of the raft log etcd keeps in memory for members that are behind.
// The embedded etcd has one member, so one entry is enough. etcd's default, which 0 selects, is 5,000
// entries: the last 5,000 objects written.
const catchUpEntries = 1

func embeddedConfig(dir string, failed *failure) (config.ServerConfig, error) {
	peers, err := types.NewURLs([]string{singlePeer})
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
		WatchProgressNotifyInterval: progressInterval,
		DowngradeCheckTime:          defaults.DowngradeCheckTime,
		MaxLearners:                 defaults.MaxLearners,
		V2Deprecation:               defaults.V2DeprecationEffective(),
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, logger),
		Logger:                      logger,
	}, nil
}
