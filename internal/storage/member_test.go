// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// TestMembers: a store that was alone becomes the first of three members. Any two of them go on without the third, which has
// everything when it is back. Data of a member are not opened as a single store.
func TestMembers(t *testing.T) {
	members := membersOf(t, 3)
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	single := open(t, dirs[0])
	persist(t, single, "alone")
	single.Close()

	backends := make([]*Backend, 3)
	backends[0] = openMember(t, dirs[0], members[0])
	if !backends[0].Shared() {
		t.Error("a member says that it is alone")
	}
	joined := make(chan error)
	for i := range 2 { // at the same time
		go func() {
			var err error
			backends[1+i], err = EmbeddedMember(t.Context(), dirs[1+i], members[1+i], clock.RealClock{}, DefaultRetention)
			joined <- err
		}()
	}
	err := errors.Join(<-joined, <-joined)
	for _, b := range backends[1:] {
		if b != nil {
			t.Cleanup(b.Close)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range backends {
		persist(t, b, fmt.Sprint("with-", i))
	}
	listsMembers(t, members, "")
	for i := range backends {
		began := time.Now()
		backends[i].Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("closing a member took %v", took)
		}
		other := backends[(i+1)%3]
		listsMembers(t, members, members[i].Name)
		persist(t, other, fmt.Sprint("without-", i))
		backends[i] = openMember(t, dirs[i], members[i])
		for _, key := range []string{"alone", "with-0", "with-1", "with-2", fmt.Sprint("without-", i)} {
			if got, err := backends[i].Client().Get(t.Context(), "/test/"+key); err != nil || len(got.Kvs) != 1 {
				t.Errorf("member %d has no %s: %v", i, key, err)
			}
		}
	}
	removes(t, members[0], members[1].Name)
	for _, b := range backends {
		b.Close()
	}
	if b, err := Embedded(t.Context(), dirs[2], clock.RealClock{}, DefaultRetention); err == nil || !strings.Contains(err.Error(), "is one of 2 members of an etcd cluster: start it with --etcd-embedded") {
		if err == nil {
			b.Close()
		}
		t.Errorf("opening the data of a member alone: %v", err)
	}
}

// TestFiveMembers: five members go on without any two of them, and all stop at once within two seconds: none waits for another that leads.
func TestFiveMembers(t *testing.T) {
	var backends []*Backend
	for _, m := range membersOf(t, 5) {
		backends = append(backends, openMember(t, t.TempDir(), m))
	}
	persist(t, backends[4], "with")
	close := func(some []*Backend) {
		t.Helper()
		began := time.Now()
		var closing sync.WaitGroup
		for _, b := range some {
			closing.Go(b.Close)
		}
		closing.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closing %d members took %v", len(some), took)
		}
	}
	close(backends[:2])
	persist(t, backends[4], "without")
	close(backends[2:])
}

// removes: a member can be removed, once.
func removes(t *testing.T, by *Member, name string) {
	t.Helper()
	client, err := ConnectMembers(t.Context(), by.CA, by.Cert, by.Key, ClientURL(by.Address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Remove(t.Context(), name); err != nil {
		t.Error(err)
	}
	if err := client.Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), "has no member "+name) {
		t.Errorf("removed again: %v", err)
	}
}

// listsMembers: all members are known, and respond but for one.
func listsMembers(t *testing.T, members []*Member, silent string) {
	t.Helper()
	var urls []string
	for _, m := range members {
		urls = append(urls, ClientURL(m.Address))
	}
	client, err := ConnectMembers(t.Context(), members[0].CA, members[0].Cert, members[0].Key, urls...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := client.List(t.Context())
	if err != nil || len(all) != len(members) {
		t.Fatalf("members %+v, %v", all, err)
	}
	for _, m := range all {
		if m.Learner || (m.Problem != "") != (m.Name == silent) {
			t.Errorf("with %q silent: %+v", silent, m)
		}
	}
}

// membersOf returns members with addresses of this machine; all but the first join it.
func membersOf(t *testing.T, count int) []*Member {
	t.Helper()
	hosts := []string{"127.0.0.1:0"}
	for i := range count {
		hosts = append(hosts, fmt.Sprintf("127.0.77.%d:0", 1+i))
	}
	files, err := transport.SelfCert(zap.NewNop(), t.TempDir(), hosts, 1, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	var all []*Member
	for i, host := range hosts[1:] {
		host, _, _ = net.SplitHostPort(host)
		m := &Member{Name: fmt.Sprint("member-", i), Address: net.ParseIP(host), CA: files.CertFile, Cert: files.CertFile, Key: files.KeyFile, Waiting: func(string) {}}
		if i > 0 {
			m.Join = []string{ClientURL(all[0].Address)}
		}
		all = append(all, m)
	}
	return all
}

func openMember(t *testing.T, dir string, m *Member) *Backend {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := EmbeddedMember(ctx, dir, m, clock.RealClock{}, DefaultRetention)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// persist writes a key, as often as it takes while the members elect a leader.
func persist(t *testing.T, b *Backend, key string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := b.Client().Put(ctx, "/test/"+key, key)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("write %s: %v", key, err)
		}
	}
}

// TestAMemberWaits: a member that cannot get a majority says so and waits, and a start that waits can be interrupted.
func TestAMemberWaits(t *testing.T) {
	members := membersOf(t, 2)
	dirs := []string{t.TempDir(), t.TempDir()}
	first := openMember(t, dirs[0], members[0])
	second := openMember(t, dirs[1], members[1])
	second.Close()
	first.Close()
	var waits atomic.Int32
	members[0].Waiting = func(why string) {
		if strings.Contains(why, "a majority of its 2 members") {
			waits.Add(1)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := EmbeddedMember(ctx, dirs[0], members[0], clock.RealClock{}, DefaultRetention)
		done <- err
	}()
	for end := time.Now().Add(time.Minute); waits.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not say that it waits")
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted start returned %v", err)
	}
}

// TestTemporary: a change of members is tried again after errors of this moment alone, as a client sees them and as a server returns them.
func TestTemporary(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{rpctypes.ErrTimeoutDueToConnectionLost, true},
		{rpctypes.ErrTimeout, true},
		{rpctypes.ErrNoLeader, true},
		{rpctypes.ErrUnhealthy, true},
		{rpctypes.ErrTooManyLearners, true},
		{rpctypes.ErrPeerURLExist, true},
		{etcderrors.ErrTimeoutDueToConnectionLost, true},
		{etcderrors.ErrLeaderChanged, true},
		{etcderrors.ErrNotEnoughStartedMembers, true},
		{context.DeadlineExceeded, true},
		{context.Canceled, false},
		{rpctypes.ErrMemberBadURLs, false},
		{rpctypes.ErrClusterIDMismatch, false},
		{etcderrors.ErrCorrupt, false},
		{status.Error(codes.Unavailable, "connection refused"), false}, // a port that is closed stays so
	} {
		if got := isTemporary(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}

// TestNameOf: a member that has never started has a name by which it can be removed.
func TestNameOf(t *testing.T) {
	for _, test := range []struct {
		member *etcdserverpb.Member
		want   string
	}{
		{&etcdserverpb.Member{Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}}, "a"},
		{&etcdserverpb.Member{PeerURLs: []string{"https://10.0.0.2:2380"}}, "https://10.0.0.2:2380"},
		{&etcdserverpb.Member{}, ""},
	} {
		if got := nameOf(test.member); got != test.want {
			t.Errorf("%+v: %q, want %q", test.member, got, test.want)
		}
	}
}

// TestQuickAttempts: a machine that tries to join several times within a second, and does not start, is admitted each time.
func TestQuickAttempts(t *testing.T) {
	members := membersOf(t, 2)
	first := openMember(t, t.TempDir(), members[0])
	defer first.Close()
	for i := range 4 {
		if _, err := members[1].ask(t.Context()); err != nil {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
}
