// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kindred-project/kindred/test/etcd"
)

// etcdVariable makes the program of these tests a member of etcd, which it describes.
const etcdVariable = "KINDRED_SCENARIO_ETCD"

// serveEtcd runs a member of etcd if this process is to be one.
func serveEtcd() {
	description := os.Getenv(etcdVariable)
	if description == "" {
		return
	}
	var m etcd.Member
	if err := json.Unmarshal([]byte(description), &m); err != nil {
		log.Fatal(err)
	}
	log.Fatal(etcd.Serve(m))
}

// etcdMember is a process on a machine of its own.
type etcdMember struct {
	t       *testing.T
	machine *otherMachine
	etcd.Member
	process *process
}

// newEtcdCluster starts members on the given machines.
func newEtcdCluster(l *lan, numbers ...int) (all []*etcdMember) {
	l.t.Helper()
	var cluster []string
	for _, number := range numbers {
		m := l.machine(number)
		name := fmt.Sprintf("etcd-%d", number)
		all = append(all, &etcdMember{t: l.t, machine: m, Member: etcd.Member{Name: name, Dir: filepath.Join(l.t.TempDir(), name), Address: m.address}})
		cluster = append(cluster, name+"="+etcd.PeerURL(m.address))
	}
	for _, m := range all {
		m.Cluster = strings.Join(cluster, ",")
		m.start()
		l.t.Cleanup(func() { m.process.end() })
	}
	return all
}

func (m *etcdMember) start() {
	m.t.Helper()
	description, err := json.Marshal(m.Member)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command("nsenter", "--net=/run/netns/"+m.machine.namespace, os.Args[0])
	cmd.Env = append(os.Environ(), etcdVariable+"="+string(description))
	if m.process, err = startProcess(cmd); err != nil {
		m.t.Fatal(err)
	}
}

// killed kills members.
func killed(members ...*etcdMember) (heal func()) {
	for _, m := range members {
		m.process.end()
	}
	return func() {
		for _, m := range members {
			m.start()
		}
	}
}

// TestFaultsOfEtcd is TestFaults with servers on an etcd cluster of three members, which fail.
func TestFaultsOfEtcd(t *testing.T) {
	needFaults(t)
	l := newLAN(t)
	members := newEtcdCluster(l, 11, 12, 13)
	var urls []string
	for _, m := range members {
		urls = append(urls, etcd.ClientURL(m.Address))
	}
	b := newFaultBed(t, l, "--server", "--etcd-servers", strings.Join(urls, ","))
	rows := []fault{
		{name: "SIGKILL of two members of etcd", inject: func(*faultBed) func() { return killed(members[0], members[1]) }, hold: cutOff},
		{name: "SIGKILL of the leader on an etcd cluster", inject: func(b *faultBed) func() { return b.killed(b.leads()) }, hold: cutOff},
	}
	for i, m := range members {
		rows = append(rows,
			fault{name: fmt.Sprintf("SIGKILL of etcd member %d", i+1), inject: func(*faultBed) func() { return killed(m) }, hold: cutOff},
			fault{name: fmt.Sprintf("a cut between the leader and etcd member %d", i+1), inject: func(b *faultBed) func() { return l.cut(1+b.leads(), 11+i) }, hold: cutOff})
	}
	for _, f := range rows {
		t.Run(f.name, func(t *testing.T) { b.survives(t, f) })
	}
}
