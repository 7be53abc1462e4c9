// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	system  = "6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user,task=a,b=c,pid=17,uid=0\n"
	limited = "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/k/podu,task_memcg=/k/podu/c,task=tail,pid=18,uid=0\n SUBSYSTEM=x\n"
)

// log returns its records one by one; an empty one is an overwritten one.
type log []string

func (l *log) Read(b []byte) (int, error) {
	if len(*l) == 0 {
		return 0, io.EOF
	}
	record := (*l)[0]
	*l = (*l)[1:]
	if record == "" {
		return 0, unix.EPIPE
	}
	return copy(b, record), nil
}

func TestRead(t *testing.T) {
	var kills []Kill
	records := log{
		"6,1,2,-;eth0: link up\n", system, "", limited,
		"14" + system[1:], // written by a process
		"6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,task=x\n", "6,1,2,-;oom-kill:,task=x,pid=y\n", "x;oom-kill:,task=x,pid=1\n", "6",
	}
	if err := read(&records, func(k Kill) { kills = append(kills, k) }); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	want := []Kill{{Process: "a,b=c", PID: 17, Cgroup: "/user", System: true}, {Process: "tail", PID: 18, Cgroup: "/k/podu/c"}}
	if diff := cmp.Diff(want, kills); diff != "" {
		t.Errorf("kills (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(system)
	f.Add(limited)
	f.Fuzz(func(_ *testing.T, record string) { parse(record) })
}

// TestWatchEnds: the end of the context ends a Watch that waits for a record.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Watch(ctx, func(Kill) {}) }()
	cancel()
	if err := <-done; errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) {
		t.Skip(err)
	} else if err != nil {
		t.Error(err)
	}
}
