// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/criconfig"
	"github.com/kindred-project/kindred/internal/node/runtime"
)

// createSandbox is the stage of CreateSandbox.
//
// Assumes: volumes and devices are ready, and no other sandbox of the pod is ready or holds its network.
// Leaves: the pod's cgroup, its range of IDs if it has a user namespace, its log directory and a ready sandbox, numbered Action.Attempt.
// On failure: an event, and a Failure of OfSandbox. A cgroup, range or directory that was created stays
// for the next attempt or for Release and Clean.
func (w *Worker) createSandbox(ctx context.Context, t task) func(*Memory) {
	if err := w.runSandbox(context.WithoutCancel(ctx), t); err != nil {
		message := "Failed to create pod sandbox: " + runtime.Message(err)
		w.event(t.pod, "", v1.EventTypeWarning, "FailedCreatePodSandBox", message)
		return w.failed(OfSandbox, "FailedCreatePodSandBox", message)
	}
	return func(m *Memory) {
		delete(m.Failures, OfSandbox)
		m.Cgroup = new(criconfig.PodSize(t.pod))
	}
}

func (w *Worker) runSandbox(ctx context.Context, t task) error {
	parent, err := w.parts.Cgroups.Ensure(t.pod)
	if err != nil {
		return err
	}
	dns, err := w.parts.Host.DNS.For(t.pod)
	if err != nil {
		return err
	}
	handler := ""
	if class := t.pod.Spec.RuntimeClassName; class != nil && *class != "" {
		if handler, err = w.parts.RuntimeHandler(ctx, *class); err != nil {
			return err
		}
	}
	users, err := w.userNamespace(t.pod, handler)
	if err != nil {
		return err
	}
	config, err := w.parts.Host.Sandbox(w.withGroups(t.pod), t.Attempt, parent, dns, users)
	if err != nil {
		return err
	}
	if err := w.parts.Host.Layout.MakePodLogsDir(t.pod.Namespace, t.pod.Name, t.pod.UID); err != nil {
		return fmt.Errorf("create the pod's log directory: %w", err)
	}
	sandbox, err := w.parts.Runtime.RunPodSandbox(ctx, w.uid, config, handler)
	if err != nil {
		return err
	}
	if w.parts.AnnouncePod != nil && !t.pod.Spec.HostNetwork {
		w.toFinish.Go(func() { w.announce(ctx, t.pod, sandbox) })
	}
	return nil
}

// announce announces the addresses of a new sandbox. It takes 13 ms, in which the kernel waits, so that the first container
// is created meanwhile.
func (w *Worker) announce(ctx context.Context, pod *v1.Pod, sandbox string) {
	if err := w.parts.AnnouncePod(sandbox); err != nil {
		klog.FromContext(ctx).Error(err, "The pod may not be reached for a minute if its address is that of a former pod", "pod", klog.KObj(pod))
	}
}

// userNamespace returns the pod's user namespace, or nil if it has the host's.
func (w *Worker) userNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	if !isFalse(pod.Spec.HostUsers) {
		return nil, nil
	}
	return w.parts.Users.For(pod.UID, handler)
}
