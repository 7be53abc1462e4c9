// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oom reads from the kernel's log (/dev/kmsg) which processes it has killed because memory ran out.
package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kill is the end of a process for lack of memory.
type Kill struct {
	// Process is the name of the process.
	Process string
	PID     int
	// Cgroup is the memory cgroup of the process.
	Cgroup string
	// System is set if the machine ran out of memory, and not a cgroup with a limit.
	System bool
}

// Watch calls seen for each kill from now on, until ctx ends.
func Watch(ctx context.Context, seen func(Kill)) error {
	// Without O_NONBLOCK, Close would not end Read.
	log, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("watch for processes that the kernel kills: %w", err)
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("watch for processes that the kernel kills: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = log.Close() })()
	err = read(log, seen)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch for processes that the kernel kills: %w", err)
}

// longest is more than the kernel writes in one record.
const longest = 8192

// read reads records until an error. Each Read returns one.
func read(log io.Reader, seen func(Kill)) error {
	record := make([]byte, longest)
	for {
		n, err := log.Read(record)
		if errors.Is(err, unix.EPIPE) {
			continue // records were overwritten before they were read
		}
		if err != nil {
			return err
		}
		if kill, ok := parse(string(record[:n])); ok {
			seen(kill)
		}
	}
}

// kernel is the facility of the kernel's own messages, which no process can write.
const kernel = 0

// parse reads a record such as
//
//	6,1234,98765,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user,task=hog,pid=17,uid=0
//
// which Linux writes since 5.0. If a cgroup has reached its limit, oom_memcg= takes the place of global_oom.
func parse(record string) (Kill, bool) {
	head, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	level, err := strconv.Atoi(priority)
	text, _, _ = strings.Cut(text, "\n")
	fields, ok := strings.CutPrefix(text, "oom-kill:")
	if err != nil || level>>3 != kernel || !ok {
		return Kill{}, false
	}
	// The name of a process may have commas and equal signs. It is between fields that have none.
	i, j := strings.Index(fields, ",task="), strings.LastIndex(fields, ",pid=")
	if i < 0 || j < i {
		return Kill{}, false
	}
	kill := Kill{Process: fields[i+len(",task=") : j]}
	pid, _, _ := strings.Cut(fields[j+len(",pid="):], ",")
	if kill.PID, err = strconv.Atoi(pid); err != nil {
		return Kill{}, false
	}
	limited := "/"
	for _, field := range strings.Split(fields[:i], ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "task_memcg":
			kill.Cgroup = value
		case "oom_memcg":
			limited = value
		}
	}
	kill.System = limited == "/"
	return kill, true
}
