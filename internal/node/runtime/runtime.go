// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/source"
)

// Runtime is the CRI v1 runtime of one node.
type Runtime struct {
	cri   cri.RuntimeService
	owner string
	clock clock.Clock
	exits exits
	// oomKills completes what the runtime says of exits.
	oomKills oomKills

	mu      sync.Mutex
	seen    map[types.UID]*Pod // full details, from the last Get or Refresh
	touched map[types.UID]*touched
	stops   map[string]int // how many calls stop a container or sandbox now
}

// New wraps a CRI client. owner is the value of LabelOwner on the node's sandboxes and containers.
func New(service cri.RuntimeService, owner string, clock clock.Clock) *Runtime {
	return &Runtime{
		cri: service, owner: owner, clock: clock, oomKills: newOOMKills(),
		seen: map[types.UID]*Pod{}, touched: map[types.UID]*touched{}, stops: map[string]int{},
	}
}

// Service returns the CRI client, for calls that need no conversion.
func (r *Runtime) Service() cri.RuntimeService { return r.cri }

// List returns all pods of this node by UID, with two calls. They have states, but no addresses,
// times or exit codes: Same can tell what changed.
func (r *Runtime) List(ctx context.Context) (map[types.UID]*Pod, error) {
	return r.list(ctx, map[string]string{LabelOwner: r.owner})
}

// Get returns all details of one pod. It requests the status only of sandboxes and containers whose
// state has changed since the last Get.
func (r *Runtime) Get(ctx context.Context, uid types.UID) (*Pod, error) {
	r.takeTouched(uid)
	pod, err := r.read(ctx, uid)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[uid] = pod
	return pod, nil
}

// Known returns what the last Get or Refresh returned. A pod that neither has read yet, such as one that was there before its agent, is read; the
// result is not remembered, because a Get at the same time may return a newer one.
func (r *Runtime) Known(ctx context.Context, uid types.UID) (*Pod, error) {
	if last := r.Last(uid); last != nil {
		return last, nil
	}
	return r.read(ctx, uid)
}

func (r *Runtime) read(ctx context.Context, uid types.UID) (*Pod, error) {
	pods, err := r.list(ctx, map[string]string{LabelOwner: r.owner, LabelPodUID: string(uid)})
	if err != nil {
		return nil, err
	}
	pod := pods[uid]
	if pod == nil {
		pod = &Pod{UID: uid}
	}
	before := r.Last(uid)
	for i := range pod.Sandboxes {
		if err := r.detailSandbox(ctx, uid, &pod.Sandboxes[i], before); err != nil {
			return nil, err
		}
	}
	for i := range pod.Containers {
		if err := r.detailContainer(ctx, uid, &pod.Containers[i], before); err != nil {
			return nil, err
		}
	}
	return pod, nil
}

// Last returns what the last Get or Refresh returned, or nil.
func (r *Runtime) Last(uid types.UID) *Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[uid]
}

// Forget drops what Last returns for a pod.
func (r *Runtime) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, uid)
	delete(r.touched, uid)
}

func (r *Runtime) list(ctx context.Context, labels map[string]string) (map[types.UID]*Pod, error) {
	sandboxes, containers, err := r.listBoth(ctx, labels)
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]*Pod{}
	of := func(labels map[string]string) *Pod {
		uid := types.UID(labels[LabelPodUID])
		if pods[uid] == nil {
			pods[uid] = &Pod{UID: uid, Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]}
		}
		return pods[uid]
	}
	for _, s := range sandboxes {
		pod := of(s.Labels)
		pod.Source = s.Annotations[source.Annotation]
		pod.Sandboxes = append(pod.Sandboxes, newSandbox(s))
	}
	for _, c := range containers {
		pod := of(c.Labels)
		pod.Containers = append(pod.Containers, newContainer(c, c.PodSandboxId))
	}
	for _, pod := range pods {
		pod.sort()
	}
	return pods, nil
}

// listBoth makes the two calls at the same time, because the start and the stop of a pod wait for them several times. One list
// may show a change that the other does not show yet; the reading after the change shows both.
func (r *Runtime) listBoth(ctx context.Context, labels map[string]string) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	var sandboxes []*runtimeapi.PodSandbox
	var sandboxErr error
	var listed sync.WaitGroup
	listed.Go(func() {
		if sandboxes, sandboxErr = r.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels}); sandboxErr != nil {
			sandboxErr = fmt.Errorf("list sandboxes: %w", sandboxErr)
		}
	})
	containers, err := r.cri.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		err = fmt.Errorf("list containers: %w", err)
	}
	listed.Wait()
	return sandboxes, containers, errors.Join(sandboxErr, err)
}

func (r *Runtime) detailSandbox(ctx context.Context, uid types.UID, s *Sandbox, before *Pod) error {
	if !s.Ready {
		return nil
	}
	if before != nil {
		for _, b := range before.Sandboxes {
			if b.ID == s.ID && b.Ready {
				s.IPs = b.IPs
				return nil
			}
		}
	}
	response, err := r.cri.PodSandboxStatus(ctx, s.ID, r.exits.wantsPIDs())
	if IsNotFound(err) {
		s.Ready = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of sandbox %s: %w", s.ID, err)
	}
	s.IPs = sandboxOf(response.GetStatus()).IPs
	r.exits.watch(process{pod: uid, id: s.ID, sandbox: true, pid: processID(response.GetInfo())})
	return nil
}

func (r *Runtime) detailContainer(ctx context.Context, uid types.UID, c *Container, before *Pod) error {
	if before != nil {
		for _, b := range before.Containers {
			if b.ID == c.ID && b.State == c.State {
				*c = b
				return nil
			}
		}
	}
	verbose := c.State == Running && r.exits.wantsPIDs()
	response, err := r.cri.ContainerStatus(ctx, c.ID, verbose)
	if IsNotFound(err) {
		c.State = Unknown
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of container %s: %w", c.ID, err)
	}
	r.detail(uid, c, response)
	return nil
}

// detail completes a container with its status, and watches its process.
func (r *Runtime) detail(uid types.UID, c *Container, response *runtimeapi.ContainerStatusResponse) {
	fill(c, response.GetStatus())
	r.oomKills.explain(c)
	if c.State == Exited && c.Message == "" {
		c.Message = terminationMessage(c)
	}
	if c.State == Running {
		r.exits.watch(process{pod: uid, id: c.ID, pid: processID(response.GetInfo())})
	}
}

// IsUnavailable reports whether a CRI call failed because the runtime does not run, or ended during the call.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// IsNotFound reports whether a CRI call failed because the object does not exist.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Message returns the text of a CRI error without gRPC's prefix.
func Message(err error) string {
	s, _ := status.FromError(err)
	return s.Message()
}
