// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/clock"
)

// The ports of etcd (IANA).
const (
	clientPort = "2379"
	peerPort   = "2380"
)

const (
	// memberTick and memberElection are etcd's defaults, which suit machines in one data center.
	memberTick     = 100 * time.Millisecond
	memberElection = time.Second
	// admissionLimit is how long a member waits until it may join, and joinPause the time between two attempts.
	admissionLimit = 2 * time.Minute
	joinPause      = time.Second
	// attemptLimit is how long one attempt may take. etcd drops a change of its members without a word if another one is in progress.
	attemptLimit = 5 * time.Second
	// transferLimit is how long a stop waits until another member leads, which takes 0.1 to 0.2 s if there is one.
	transferLimit = 700 * time.Millisecond
	// closePatience is how long a stop waits for connections to end.
	closePatience = 200 * time.Millisecond
	// memberCatchUp is how many entries of the log a member keeps for others that are behind. One that is further behind gets a snapshot.
	memberCatchUp = 5000
)

// Member makes the embedded etcd a member of a cluster: other members, and their clients, reach it by TLS.
type Member struct {
	// Name is the name of the member, which no other one has.
	Name string
	// Address is that of this machine.
	Address net.IP
	// CA is the file with the authority of all members and clients. Cert and Key are those of this member.
	CA, Cert, Key string
	// Join are the URLs of members of a cluster to join; a member without any is the first.
	Join []string
	// Waiting is called with what a start waits for.
	Waiting func(string)
}

// ClientURL returns the URL at which clients reach a member on a machine.
func ClientURL(address net.IP) string {
	return "https://" + net.JoinHostPort(address.String(), clientPort)
}

func (m *Member) peerURL() string { return "https://" + net.JoinHostPort(m.Address.String(), peerPort) }

// launch starts the member on the files in dir. It joins its cluster first, if it has not done so.
func (m *Member) launch(ctx context.Context, dir string, failed *failure) (instance, error) {
	there, err := exists(memberDir(dir))
	if err != nil {
		return instance{}, err
	}
	conf := m.config(dir, failed)
	joins := !there && len(m.Join) > 0
	if joins {
		if conf.InitialCluster, err = m.ask(ctx); err != nil {
			return instance{}, fmt.Errorf("join the etcd cluster at %s: %w", strings.Join(m.Join, ", "), err)
		}
		conf.ClusterState = embed.ClusterStateFlagExisting
	}
	etcd, err := embed.StartEtcd(conf)
	switch {
	case err != nil && joins:
		return instance{}, fmt.Errorf("join the etcd cluster at %s: %w; members must reach each other at port %s", strings.Join(m.Join, ", "), err, peerPort)
	case err != nil:
		return instance{}, unusable(dir, err)
	}
	return instance{server: etcd.Server, stop: func() { stop(etcd) }}, nil
}

// stop stops a member. The server is stopped first: Close of one that is not ready would wait until it is. Then Close closes the ports at
// once, and waits a second for connections of other members, for which stop does not wait.
func stop(etcd *embed.Etcd) {
	// A member that leads passes that on before it stops, and waits for seconds if no other one takes it, as when all stop.
	late := clock.RealClock{}.AfterFunc(transferLimit, etcd.Server.HardStop)
	etcd.Server.Stop()
	late.Stop()
	closed := make(chan struct{})
	go func() {
		etcd.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-clock.RealClock{}.After(closePatience):
	}
}

// config returns the configuration of a first member.
func (m *Member) config(dir string, failed *failure) *embed.Config {
	at := func(port string) []url.URL {
		return []url.URL{{Scheme: "https", Host: net.JoinHostPort(m.Address.String(), port)}}
	}
	tls := transport.TLSInfo{CertFile: m.Cert, KeyFile: m.Key, TrustedCAFile: m.CA, ClientCertAuth: true}
	conf := embed.NewConfig()
	conf.Name, conf.Dir = m.Name, dir
	conf.ListenClientUrls, conf.AdvertiseClientUrls, conf.ClientTLSInfo = at(clientPort), at(clientPort), tls
	conf.ListenPeerUrls, conf.AdvertisePeerUrls, conf.PeerTLSInfo = at(peerPort), at(peerPort), tls
	conf.InitialCluster, conf.InitialClusterToken = m.Name+"="+m.peerURL(), memberName
	conf.TickMs, conf.ElectionMs = uint(memberTick.Milliseconds()), uint(memberElection.Milliseconds())
	conf.QuotaBackendBytes, conf.MaxRequestBytes = quota, maxRequestBytes
	conf.SnapshotCatchUpEntries = memberCatchUp
	conf.WarningApplyDuration, conf.WarningUnaryRequestDuration = time.Second, time.Second
	conf.WatchProgressNotifyInterval = progressInterval
	conf.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(filepath.Join(dir, "etcd.log"), failed))
	return conf
}

// client returns a client of the members to join.
func (m *Member) client(ctx context.Context) (*clientv3.Client, error) {
	tls, err := transport.TLSInfo{TrustedCAFile: m.CA, CertFile: m.Cert, KeyFile: m.Key}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("certificates of etcd: %w", err)
	}
	return clientv3.New(clientv3.Config{Endpoints: m.Join, TLS: tls, Context: ctx, DialTimeout: 20 * time.Second, Logger: zap.NewNop()})
}

// ask asks the cluster to admit this machine as a learner, and returns the initial cluster of the new member. A cluster admits one
// learner at a time.
func (m *Member) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, admissionLimit)
	defer cancel()
	client, err := m.client(ctx)
	if err != nil {
		return "", err
	}
	defer client.Close()
	var members []*etcdserverpb.Member
	err = retry(ctx, func(ctx context.Context) (err error) {
		members, err = m.admission(ctx, client)
		return err
	}, func(err error) { m.Waiting(fmt.Sprintf("the etcd cluster admits this machine later: %v", err)) })
	return initialCluster(members, m), err
}

// retry changes the members of a cluster, again as long as it cannot be changed now. It calls later with the reason before each pause.
func retry(ctx context.Context, change func(context.Context) error, later func(error)) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptLimit)
		err := change(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !isTemporary(err) {
			return err
		}
		later(err)
		select {
		case <-clock.RealClock{}.After(joinPause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// admission adds this machine. An earlier attempt of it that has not started is replaced.
func (m *Member) admission(ctx context.Context, client *clientv3.Client) ([]*etcdserverpb.Member, error) {
	known, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	for _, other := range known.Members {
		if slices.Contains(other.PeerURLs, m.peerURL()) {
			if other.Name != "" && !other.IsLearner {
				return nil, fmt.Errorf("it has a member at %s already, whose data this machine does not have: remove it with \"kindred server remove %s\" on another server", m.peerURL(), other.Name)
			}
			if _, err := client.MemberRemove(ctx, other.ID); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
				return nil, err
			}
		}
	}
	added, err := client.MemberAddAsLearner(ctx, []string{m.peerURL()})
	if err != nil {
		return nil, err
	}
	return added.Members, nil
}

// isTemporary reports whether the members of a cluster may be changed later. All errors of etcd with the code Unavailable say so: the members
// have no leader, or their connections are too young or were lost. A change that timed out may have been made, so that a URL exists or a
// member is gone. A member that was added and removed in the same second cannot be added again in this second: its ID has been removed for
// good, and the next one follows from the time in seconds.
func isTemporary(err error) bool {
	err = rpctypes.Error(err) // a server returns errors of its own, with the same texts
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok && known.Code() == codes.Unavailable {
		return true
	}
	return slices.ContainsFunc([]error{
		context.DeadlineExceeded, rpctypes.ErrTooManyLearners, rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrMemberNotFound, rpctypes.ErrPeerURLExist,
	}, func(temporary error) bool { return errors.Is(err, temporary) })
}

// initialCluster lists members as a new one must know them, itself among them.
func initialCluster(members []*etcdserverpb.Member, self *Member) string {
	var all []string
	for _, member := range members {
		name := member.Name
		if slices.Contains(member.PeerURLs, self.peerURL()) {
			name = self.Name
		}
		for _, peer := range member.PeerURLs {
			all = append(all, name+"="+peer)
		}
	}
	return strings.Join(all, ",")
}

// settle makes a member that is ready a full one: its address becomes known, and a learner is promoted once it has all data.
func (m *Member) settle(ctx context.Context, server *etcdserver.EtcdServer) error {
	self := server.Cluster().Member(server.MemberID())
	if self == nil {
		return errors.New("it has been removed from its etcd cluster; \"kindred reset\" lets this machine join again")
	}
	if !slices.Equal(self.PeerURLs, []string{m.peerURL()}) {
		changed := membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{m.peerURL()}, IsLearner: self.IsLearner}}
		err := retry(ctx, func(ctx context.Context) error {
			_, err := server.UpdateMember(ctx, changed)
			return err
		}, func(err error) {
			m.Waiting(fmt.Sprintf("the other members learn the address of this one later: %v", err))
		})
		if err != nil {
			return fmt.Errorf("tell the other members the address of this one: %w", err)
		}
	}
	for server.IsLearner() {
		_, err := server.PromoteMember(ctx, uint64(server.MemberID()))
		if err == nil {
			continue
		}
		m.Waiting(fmt.Sprintf("etcd copies the data of the cluster: %v", err))
		select {
		case <-clock.RealClock{}.After(joinPause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
	return nil
}
