// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/storage"
)

func TestServerStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, server := range map[string]serverStatus{
		"a at https://10.0.0.1:6443, kindred v1":        {Name: "a", URL: "https://10.0.0.1:6443", Version: "v1"},
		"a at https://10.0.0.1:6443, kindred v1, leads": {Name: "a", URL: "https://10.0.0.1:6443", Version: "v1", Leads: true},
		"a at https://10.0.0.1:6443, kindred v1, lost for 5m: start it again there; if the machine is gone for good, \"kindred server remove a\"": {
			Name: "a", URL: "https://10.0.0.1:6443", Version: "v1", Leads: true, Lost: true, Seen: now.Add(-5 * time.Minute)},
	} {
		if got := server.describe(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, test := range map[string]struct {
		servers []serverStatus
		want    bool
	}{
		"one server with its own store": {nil, false},
		"a leader":                      {[]serverStatus{{}, {Leads: true}}, false},
		"none":                          {[]serverStatus{{}, {}}, true},
		"a lost one":                    {[]serverStatus{{}, {Leads: true, Lost: true}}, true},
	} {
		s := status{Servers: test.servers, Ready: true}
		if s.leaderless() != test.want || (s.verdict() != nil) != test.want {
			t.Errorf("%s: leaderless %v, verdict %v", name, s.leaderless(), s.verdict())
		}
	}
}

func TestMembersStatus(t *testing.T) {
	full, lost := storage.MemberStatus{Name: "a"}, storage.MemberStatus{Name: "b", Problem: "connection refused"}
	for want, members := range map[string][]storage.MemberStatus{
		"embedded etcd, 3 of 3 members respond":                                                                     {full, full, full},
		"embedded etcd, 2 of 3 members respond; b does not: connection refused":                                     {full, lost, full},
		"embedded etcd, 3 of 3 members respond; c does not vote yet":                                                {full, full, {Name: "c", Learner: true}},
		"embedded etcd, 1 of 1 members respond":                                                                     {full},
		"embedded etcd, 2 of 2 members respond; with two members, the loss of either stops all writes: add a third": {full, full},
	} {
		s := status{Members: members}
		if got := s.describeMembers(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNodeCount(t *testing.T) {
	node := func(name, version string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		}}
	}
	var n nodeCount
	n.add(node("a", "v1.37.1", corev1.ConditionTrue))
	n.add(node("b", "v1.37.1", corev1.ConditionTrue))
	if got, want := n.describe(), "2 of 2 ready"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.add(node("c", "v1.36.0", corev1.ConditionUnknown))
	if got, want := n.describe(), `2 of 3 ready; "kubectl describe node c" says what is wrong; versions v1.37.1, v1.36.0`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAway: the exit status of kindred status tells that something of the cluster is away.
func TestAway(t *testing.T) {
	for want, s := range map[string]status{
		"": {Servers: []serverStatus{{Name: "a", Leads: true}}, Members: []storage.MemberStatus{{Name: "a"}}, Nodes: nodeCount{Total: 1, Ready: 1}},
		"the cluster works, but server b is lost; member b of etcd does not respond; member c of etcd does not vote yet; node n is not ready": {
			Servers: []serverStatus{{Name: "a", Leads: true}, {Name: "b", Lost: true}},
			Members: []storage.MemberStatus{{Name: "a"}, {Name: "b", Problem: "connection refused"}, {Name: "c", Learner: true}},
			Nodes:   nodeCount{Total: 2, Ready: 1, NotReady: []string{"n"}},
		},
	} {
		s.Ready = true
		got := ""
		if err := s.verdict(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
