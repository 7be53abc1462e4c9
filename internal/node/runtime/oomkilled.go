// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"path"
	"strings"

	"k8s.io/utils/lru"
)

const (
	reasonOOMKilled = "OOMKilled"
	// killedExitCode is the exit code of a process that ended with SIGKILL.
	killedExitCode = 128 + 9
	// rememberedKills is more than what the kernel kills in the time in which an exit is noticed.
	rememberedKills = 1000
	// containerIDLength is the length of a container's ID in containerd and CRI-O.
	containerIDLength = 64
)

// oomKills are the containers of which the kernel has killed a process for lack of memory, by ID.
//
// Runtimes report this reason too, but not always: containerd 1.6 waits for a notice of the container's cgroup, which may arrive after
// that of the exit, or never if the cgroup has been removed by then.
type oomKills struct{ seen *lru.Cache }

func newOOMKills() oomKills { return oomKills{lru.New(rememberedKills)} }

// OOMKilled notes that the kernel has killed a process of a cgroup for lack of memory. Its container, if it has one, then ended for
// this reason.
func (r *Runtime) OOMKilled(cgroup string) {
	if id := containerOf(cgroup); id != "" {
		r.oomKills.seen.Add(id, true)
	}
}

// explain sets the reason of a container that was killed.
func (k oomKills) explain(c *Container) {
	if c.State != Exited || c.ExitCode != killedExitCode {
		return
	}
	if _, killed := k.seen.Get(c.ID); killed {
		c.Reason = reasonOOMKilled
	}
}

// containerOf returns the ID of the container whose cgroup this is, or is in. With systemd, the name of the cgroup is that of a scope,
// such as cri-containerd-ID.scope.
func containerOf(cgroup string) string {
	for ; cgroup != "" && cgroup != "/" && cgroup != "."; cgroup = path.Dir(cgroup) {
		id := strings.TrimSuffix(path.Base(cgroup), ".scope")
		id = id[strings.LastIndexByte(id, '-')+1:]
		if isContainerID(id) {
			return id
		}
	}
	return ""
}

func isContainerID(s string) bool {
	return len(s) == containerIDLength && strings.Trim(s, "0123456789abcdef") == ""
}
