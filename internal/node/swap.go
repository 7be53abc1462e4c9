// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/kindred-project/kindred/internal/node/criconfig"
)

// checkSwap returns why the agent must not start on a machine with swap, or nil.
func checkSwap(failSwapOn bool) error {
	if !failSwapOn {
		return nil
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.Count(strings.TrimSpace(string(swaps)), "\n") > 0 { // the first line is a heading
		return errors.New("running with swap on is not supported, please disable swap or set failSwapOn to false in the kubelet configuration")
	}
	return nil
}

// swapOf returns how containers may use the machine's swap.
func swapOf(behavior string, capacity int64) criconfig.Swap {
	swap := criconfig.Swap{Limited: behavior == "LimitedSwap", Capacity: capacity}
	swap.Unified = isUnified()
	limit := filepath.Join(cgroupRoot, "memory", "memory.memsw.limit_in_bytes")
	if swap.Unified {
		// The root cgroup has no limits: look into the agent's own.
		_, own, _ := strings.Cut(line("/proc/self/cgroup"), "::")
		limit = filepath.Join(cgroupRoot, own, "memory.swap.max")
	}
	_, err := os.Stat(limit)
	swap.Controlled = err == nil
	return swap
}
