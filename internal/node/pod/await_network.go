// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kindred-project/kindred/internal/node/runtime"
	"github.com/kindred-project/kindred/internal/node/source"
)

// networkLimit is the longest time that one start of a container waits for the rules of the pod.
const networkLimit = 10 * time.Second

// errNetworkMissing is the message of a container that was not started, because the pod would be unprotected, or could not
// be reached.
var errNetworkMissing = errors.New("the pod's NetworkPolicies and host ports are not in force after 10 seconds, will retry; the log of kindred says why")

// awaitNetwork returns when the pod's NetworkPolicies and host ports are in force for the addresses of its sandbox. The worker
// publishes these addresses in the round that launches the start.
func (w *Worker) awaitNetwork(ctx context.Context, pod *v1.Pod, sandbox runtime.Sandbox) error {
	// A static pod must start without the API, which the rules come from.
	if w.parts.AwaitPod == nil || pod.Spec.HostNetwork || source.IsStatic(pod) {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := w.parts.Clock.NewTimer(networkLimit)
	defer limit.Stop()
	go func() {
		select {
		case <-limit.C():
			cancel(errNetworkMissing)
		case <-ctx.Done():
		}
	}()
	for _, ip := range sandbox.IPs {
		address, err := netip.ParseAddr(ip)
		if err != nil {
			continue // the API does not have it either
		}
		if err := w.parts.AwaitPod(ctx, pod, address.Unmap()); err != nil {
			return err
		}
	}
	return nil
}
