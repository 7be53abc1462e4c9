// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/kindred-project/kindred/internal/datadir"
	"github.com/kindred-project/kindred/internal/servers"
)

// serverStatus is the state of one of several servers.
type serverStatus struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Version string `json:"version"`
	// Leads is set if the server runs the controllers, the scheduler and the garbage collector.
	Leads bool `json:"leads,omitempty"`
	// Lost is set if it has not reported since Seen.
	Lost bool      `json:"lost,omitempty"`
	Seen time.Time `json:"seen"`
}

// readServers reads the servers of a cluster whose servers share a store.
func (s *status) readServers(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	all, err := servers.List(ctx, client)
	if err != nil {
		return err
	}
	for _, server := range all {
		s.Servers = append(s.Servers, serverStatus{
			Name: server.Name, URL: server.URL, Version: server.Version, Leads: server.Leads, Lost: server.IsLost(now), Seen: server.Seen,
		})
	}
	return nil
}

// readMembers reads the members of the etcd cluster, if the embedded etcd is one of them.
func (s *status) readMembers(ctx context.Context, layout datadir.Layout) error {
	if s.EtcdMember == "" {
		return nil
	}
	members, err := membersOf(ctx, layout, s.Instance)
	if err != nil {
		return err
	}
	defer members.Close()
	s.Members, err = members.List(ctx)
	return err
}

// describeMembers returns how many members of the etcd cluster respond, and why the others do not.
func (s *status) describeMembers() string {
	respond, wrong := 0, ""
	for _, m := range s.Members {
		switch {
		case m.Problem != "":
			wrong += fmt.Sprintf("; %s does not: %s", m.Name, m.Problem)
		case m.Learner:
			wrong += fmt.Sprintf("; %s does not vote yet", m.Name)
			respond++
		default:
			respond++
		}
	}
	text := fmt.Sprintf("embedded etcd, %d of %d members respond%s", respond, len(s.Members), wrong)
	if len(s.Members) == 2 {
		text += "; with two members, the loss of either stops all writes: add a third"
	}
	return text
}

// describe returns the state of a server, and what to do if it is lost.
func (s serverStatus) describe(now time.Time) string {
	text := fmt.Sprintf("%s at %s, kindred %s", s.Name, s.URL, s.Version)
	switch {
	case s.Lost:
		return fmt.Sprintf("%s, lost for %s: start it again there; if the machine is gone for good, \"kindred server remove %s\"",
			text, duration.HumanDuration(now.Sub(s.Seen)), s.Name)
	case s.Leads:
		return text + ", leads"
	}
	return text
}

// leaderless reports whether there are several servers and none that leads.
func (s *status) leaderless() bool {
	return len(s.Servers) > 0 && !slices.ContainsFunc(s.Servers, func(server serverStatus) bool { return server.Leads && !server.Lost })
}

// away lists the servers, members of etcd and nodes that the cluster lacks at present.
func (s *status) away() (away []string) {
	for _, server := range s.Servers {
		if server.Lost {
			away = append(away, fmt.Sprintf("server %s is lost", server.Name))
		}
	}
	for _, m := range s.Members {
		switch {
		case m.Problem != "":
			away = append(away, fmt.Sprintf("member %s of etcd does not respond", m.Name))
		case m.Learner:
			away = append(away, fmt.Sprintf("member %s of etcd does not vote yet", m.Name))
		}
	}
	for _, name := range s.Nodes.NotReady {
		away = append(away, fmt.Sprintf("node %s is not ready", name))
	}
	return away
}

// describe returns how many nodes are ready, the names of the others, and the versions if there are several.
func (n nodeCount) describe() string {
	text := fmt.Sprintf("%d of %d ready", n.Ready, n.Total)
	if len(n.NotReady) > 0 {
		text += fmt.Sprintf("; \"kubectl describe node %s\" says what is wrong", strings.Join(n.NotReady, " "))
	}
	if len(n.Versions) > 1 {
		text += "; versions " + strings.Join(n.Versions, ", ")
	}
	return text
}

// add counts a node.
func (n *nodeCount) add(node *corev1.Node) {
	n.Total++
	if isReady(node) {
		n.Ready++
	} else {
		n.NotReady = append(n.NotReady, node.Name)
	}
	if version := node.Status.NodeInfo.KubeletVersion; version != "" && !slices.Contains(n.Versions, version) {
		n.Versions = append(n.Versions, version)
	}
}
