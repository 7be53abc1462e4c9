// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/klog/v2"
)

// setOOMScore gives the process the configured oomScoreAdj, so that the kernel kills others first when the machine is out
// of memory. Only a configuration file changes it: the process may be a program that embeds the agent. A lower score
// needs CAP_SYS_RESOURCE.
func (a *Agent) setOOMScore(ctx context.Context) {
	if !a.options.Config.IsSet("oomScoreAdj") {
		return
	}
	if err := writeOOMScore("/proc/self", *a.options.Config.OOMScoreAdj); err != nil {
		klog.FromContext(ctx).Error(err, "The agent keeps the OOM score that its process was started with")
	}
}

func writeOOMScore(process string, score int32) error {
	if err := os.WriteFile(filepath.Join(process, "oom_score_adj"), []byte(strconv.Itoa(int(score))), 0o644); err != nil {
		return fmt.Errorf("set oomScoreAdj to %d, which needs CAP_SYS_RESOURCE if it is lower than before: %w", score, err)
	}
	return nil
}
