// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Members is a client for the members of an etcd cluster of servers.
type Members struct{ client *clientv3.Client }

// MemberStatus is the state of one member.
type MemberStatus struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Learner is set if it does not vote yet. Leader is set if it leads the members, which is not the server that leads the cluster.
	Learner bool `json:"learner,omitempty"`
	Leader  bool `json:"leader,omitempty"`
	// Problem is why it does not respond; empty if it does.
	Problem string `json:"problem,omitempty"`
}

// answerLimit is how long a member may take to tell its state.
const answerLimit = 2 * time.Second

// ConnectMembers returns a client of the members at some URLs. The files are the authority of the members, and the certificate and the
// key of one of them.
func ConnectMembers(ctx context.Context, ca, cert, key string, urls ...string) (*Members, error) {
	client, err := (&Member{CA: ca, Cert: cert, Key: key, Join: urls}).client(ctx)
	if err != nil {
		return nil, err
	}
	return &Members{client}, nil
}

// Close ends the connections.
func (m *Members) Close() { _ = m.client.Close() }

// List returns the state of all members.
func (m *Members) List(ctx context.Context) ([]MemberStatus, error) {
	known, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]MemberStatus, len(known))
	var asking sync.WaitGroup
	for i, member := range known {
		all[i] = MemberStatus{Name: nameOf(member), Learner: member.IsLearner}
		if len(member.ClientURLs) == 0 {
			all[i].Problem = "it has not started yet"
			continue
		}
		all[i].URL = member.ClientURLs[0]
		asking.Go(func() { m.ask(ctx, &all[i], member.ID) })
	}
	asking.Wait()
	return all, nil
}

func (m *Members) list(ctx context.Context) ([]*etcdserverpb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	known, err := m.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("the members of the etcd cluster: %w", err)
	}
	return known.Members, nil
}

// ask asks a member for its state.
func (m *Members) ask(ctx context.Context, status *MemberStatus, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	answer, err := m.client.Status(ctx, status.URL)
	if err != nil {
		status.Problem = err.Error()
		return
	}
	status.Leader = answer.Leader == id
}

// nameOf returns the name of a member. One that has never started tells none, and is known by the URL that it is to have for others.
func nameOf(member *etcdserverpb.Member) string {
	if member.Name == "" && len(member.PeerURLs) > 0 {
		return member.PeerURLs[0]
	}
	return member.Name
}

// ErrNoMember is the error for a name that no member of the etcd cluster has.
var ErrNoMember = errors.New("the etcd cluster has no member")

// Remove removes a member by its name, as List tells it, for good: its data cannot join again.
func (m *Members) Remove(ctx context.Context, name string) error {
	known, err := m.list(ctx)
	if err != nil {
		return err
	}
	for _, member := range known {
		if nameOf(member) != name {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, admissionLimit)
		defer cancel()
		err := retry(ctx, func(ctx context.Context) error {
			_, err := m.client.MemberRemove(ctx, member.ID)
			if errors.Is(err, rpctypes.ErrMemberNotFound) { // it was removed meanwhile
				return nil
			}
			return err
		}, func(error) {})
		if err != nil {
			return fmt.Errorf("remove member %s of the etcd cluster: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("%w %s", ErrNoMember, name)
}
