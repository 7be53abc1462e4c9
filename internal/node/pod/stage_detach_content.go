// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

	"k8s.io/klog/v2"
)

// detachContent is the stage of DetachContent. It runs while the sandbox stops, because the kernel takes 5 to 16 ms to detach
// a file system.
//
// Assumes: no container of the pod runs or will run again. The sandbox may still be ready: it mounts no volume, and a virtual
// machine that shares them with its containers keeps what it uses, because the mounts are detached lazily.
// Leaves: no mount that only shows content of the API, such as a token's. Memory.ContentDetached.
// On failure: nothing. Release detaches what is left, and reports it if it cannot.
func (w *Worker) detachContent(ctx context.Context, t task) func(*Memory) {
	if err := w.parts.Volumes.DetachContent(t.pod.UID); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot detach volumes yet", "pod", klog.KObj(t.pod), "err", err)
	}
	return func(m *Memory) { m.ContentDetached = true }
}
