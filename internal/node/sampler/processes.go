// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package sampler

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processes are those of one cgroup, without those of its children, as cAdvisor counts them.
type processes struct {
	count, files, sockets int
	// maxFiles is the main process's soft limit on open files, -1 for none; nil if it is unknown.
	maxFiles *int64
}

// processesIn counts the processes of a cgroup and what they have open. It reads /proc for each of them, so that only a scrape of
// /metrics/cadvisor does it, and /stats/summary does not.
func (s *Sampler) processesIn(path string) *processes {
	pids, err := s.options.Cgroups.PIDs(path)
	if err != nil {
		return nil
	}
	return countProcesses("/proc", pids, mainProcess(path, pids))
}

// mainProcess returns the process whose limits are reported for a cgroup; 0 if there is none. It is the first that the kernel
// lists: with cgroup v2 the one that joined first, with v1 the one with the lowest number. The other processes of a container
// are its children or have been started with the same limits.
func mainProcess(path string, pids []int) int {
	switch {
	case path == "/":
		return 1
	case len(pids) > 0:
		return pids[0]
	default:
		return 0
	}
}

func countProcesses(proc string, pids []int, main int) *processes {
	p := &processes{count: len(pids)}
	for _, pid := range pids {
		files, sockets := openFiles(filepath.Join(proc, strconv.Itoa(pid), "fd"))
		p.files, p.sockets = p.files+files, p.sockets+sockets
	}
	if main != 0 {
		p.maxFiles = maxOpenFiles(contentOf(filepath.Join(proc, strconv.Itoa(main), "limits")))
	}
	return p
}

const socketPrefix = "socket:"

// openFiles counts the file descriptors in a directory of /proc, and those among them that are sockets. A process that has ended
// has none. A link is read only as far as it shows a socket.
func openFiles(dir string) (files, sockets int) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what could be read counts
	var target [len(socketPrefix)]byte
	for _, name := range names {
		n, err := unix.Readlinkat(int(d.Fd()), name, target[:])
		if err == nil && string(target[:n]) == socketPrefix {
			sockets++
		}
	}
	return len(names), sockets
}

// maxOpenFiles returns the soft limit in the line "Max open files  1024  524288  files" of /proc/PID/limits: -1 for "unlimited",
// nil if it is missing.
func maxOpenFiles(limits string) *int64 {
	for line := range strings.Lines(limits) {
		values, ok := strings.CutPrefix(line, "Max open files ")
		if !ok {
			continue
		}
		soft, _, _ := strings.Cut(strings.TrimSpace(values), " ")
		if soft == "unlimited" {
			return new(int64(-1))
		}
		if n, err := strconv.ParseInt(soft, 10, 64); err == nil {
			return &n
		}
	}
	return nil
}
