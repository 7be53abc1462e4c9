// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/node/source"
)

// Refresh returns all details of one pod after calls of this Runtime have changed it. It requests the status of what they
// changed, and nothing else: a list makes the runtime look through all pods of the node. Other changes are found by Watch and
// by periodic lists.
func (r *Runtime) Refresh(ctx context.Context, uid types.UID) (*Pod, error) {
	last, changed := r.Last(uid), r.takeTouched(uid)
	switch {
	case last == nil || changed != nil && changed.whole:
		return r.Get(ctx, uid)
	case changed == nil:
		return last, nil
	}
	pod := *last
	pod.Sandboxes, pod.Containers = slices.Clone(last.Sandboxes), slices.Clone(last.Containers)
	for _, id := range changed.removed {
		pod.dropContainer(id)
		delete(changed.containers, id)
	}
	for _, id := range changed.sandboxes {
		if err := r.refreshSandbox(ctx, &pod, id); err != nil {
			return nil, err
		}
	}
	for id, sandbox := range changed.containers {
		if err := r.refreshContainer(ctx, &pod, id, sandbox); err != nil {
			return nil, err
		}
	}
	pod.sort()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[uid] = &pod
	return &pod, nil
}

func (r *Runtime) refreshSandbox(ctx context.Context, pod *Pod, id string) error {
	i := slices.IndexFunc(pod.Sandboxes, func(s Sandbox) bool { return s.ID == id })
	response, err := r.cri.PodSandboxStatus(ctx, id, i < 0 && r.exits.wantsPIDs())
	if IsNotFound(err) {
		pod.Sandboxes = slices.DeleteFunc(pod.Sandboxes, func(s Sandbox) bool { return s.ID == id })
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of sandbox %s: %w", id, err)
	}
	status := response.GetStatus()
	sandbox := sandboxOf(status)
	if i >= 0 {
		pod.Sandboxes[i] = sandbox
		return nil
	}
	pod.Namespace, pod.Name, pod.Source = status.Labels[LabelPodNamespace], status.Labels[LabelPodName], status.Annotations[source.Annotation]
	pod.Sandboxes = append(pod.Sandboxes, sandbox)
	r.exits.watch(process{pod: pod.UID, id: id, sandbox: true, pid: processID(response.GetInfo())})
	return nil
}

func (r *Runtime) refreshContainer(ctx context.Context, pod *Pod, id, sandbox string) error {
	i := slices.IndexFunc(pod.Containers, func(c Container) bool { return c.ID == id })
	ran := i >= 0 && pod.Containers[i].State == Running
	response, err := r.cri.ContainerStatus(ctx, id, !ran && r.exits.wantsPIDs())
	if IsNotFound(err) {
		pod.dropContainer(id)
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of container %s: %w", id, err)
	}
	if i < 0 {
		i = len(pod.Containers)
		pod.Containers = append(pod.Containers, newContainer(response.GetStatus(), sandbox))
	}
	r.detail(pod.UID, &pod.Containers[i], response)
	return nil
}

func (p *Pod) dropContainer(id string) {
	p.Containers = slices.DeleteFunc(p.Containers, func(c Container) bool { return c.ID == id })
}
