// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/oom"
)

// watchOOM records an event on the node for each process that the kernel kills because the machine ran out of memory, and tells the
// view of the runtime of each whose container did.
func (a *Agent) watchOOM(ctx context.Context) {
	err := oom.Watch(ctx, func(k oom.Kill) {
		klog.FromContext(ctx).Info("The kernel has killed a process for lack of memory", "process", k.Process, "pid", k.PID, "cgroup", k.Cgroup, "system", k.System)
		a.view.OOMKilled(k.Cgroup)
		if k.System {
			a.registration.record(v1.EventTypeWarning, "SystemOOM", fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
		}
	})
	if err != nil {
		klog.FromContext(ctx).Info("No event is recorded when the kernel kills a process for lack of memory", "reason", err)
	}
}
