// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"strconv"
	"strings"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// attemptOf returns the run that a file belongs to, given its name: <n> for a termination log, <n>.log and
// <n>.log.<time> for logs.
func attemptOf(file string) (uint32, bool) {
	number, rest, _ := strings.Cut(file, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil && (rest == "" || rest == "log" || strings.HasPrefix(rest, "log."))
}

// leftover returns the files of a container's runs that the runtime no longer has. It keeps those of a run that is newer
// than all in the runtime, which may be about to be created, and all files of a container without runs.
func leftover(files []string, runs []runtime.Container) []string {
	newest, has := uint32(0), map[uint32]bool{}
	for _, run := range runs {
		newest, has[run.Attempt] = max(newest, run.Attempt), true
	}
	var old []string
	for _, file := range files {
		if n, ok := attemptOf(file); ok && n < newest && !has[n] {
			old = append(old, file)
		}
	}
	return old
}

// isSpent reports whether all containers of a pod that is over have ended, so that the runtime can do without them.
func isSpent(pod *runtime.Pod) bool {
	for _, c := range pod.Containers {
		if c.State == runtime.Running || c.State == runtime.Unknown {
			return false
		}
	}
	return true
}
