// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/pod"
)

func keyOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func (n *Nodes) isSimulated(p *v1.Pod) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, simulated := n.index[p.Spec.NodeName]
	return simulated
}

// podHandler updates the allocations and queues the pods of simulated nodes.
func (n *Nodes) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { n.sawPod(obj.(*v1.Pod)) },
		UpdateFunc: func(before, obj any) {
			// After an interrupted watch, a recreated pod can appear as an update.
			if old := before.(*v1.Pod); old.UID != obj.(*v1.Pod).UID {
				n.allocations.release(old.UID)
			}
			n.sawPod(obj.(*v1.Pod))
		},
		DeleteFunc: func(obj any) {
			if final, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = final.Obj
			}
			if p, ok := obj.(*v1.Pod); ok && n.isSimulated(p) {
				n.allocations.release(p.UID)
				n.queue.Add(keyOf(p))
			}
		},
	}
}

func (n *Nodes) sawPod(p *v1.Pod) {
	if n.isSimulated(p) {
		n.allocations.observe(p)
		n.queue.Add(keyOf(p))
	}
}

// next processes one pod of the queue. It returns false once the queue is shut down.
func (n *Nodes) next(ctx context.Context) bool {
	key, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(key)
	again, err := n.sync(ctx, key)
	switch {
	case err != nil && ctx.Err() == nil:
		// After a conflict, the informer will deliver the newer pod.
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Cannot run the simulated pod, will retry", "pod", key)
		}
		n.queue.AddRateLimited(key)
	case again > 0:
		n.queue.Forget(key)
		n.queue.AddAfter(key, again)
	default:
		n.queue.Forget(key)
	}
	return true
}

// sync simulates one pod and writes its status. again is the time until the next call, or 0 if only an
// event leads to it.
func (n *Nodes) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	p, node, err := n.lookUp(key)
	if err != nil || p == nil || node == nil {
		n.setModel(key, nil)
		return 0, err
	}
	if n.allocations.upToDate(p) {
		return 0, nil
	}
	m := n.modelOf(key, p)
	if isNew(p) && m.memory.Rejected == nil {
		m.memory.Rejected = n.admit(klog.FromContext(ctx), node, p)
	}
	now := n.options.Clock.Now()
	s := m.simulate(p, world{
		now: now, hostIPs: internalIPs(node),
		address: func() (string, error) { return n.allocations.address(p.UID) },
	})
	n.recordWarnings(p, s.events)
	// Keep the model until the write succeeds, because it has the memory of the decisions.
	n.setModel(key, m)
	written, err := n.write(ctx, p, s)
	if err != nil {
		return 0, err
	}
	n.allocations.wrote(written, s.wake.IsZero())
	if s.wake.IsZero() {
		n.setModel(key, nil)
		return 0, nil
	}
	return max(s.wake.Sub(now), time.Millisecond), nil
}

// admit returns why the node refuses a pod, or nil. An admitted pod counts against the node.
func (n *Nodes) admit(logger klog.Logger, node *v1.Node, p *v1.Pod) *pod.Refusal {
	_, err := behaviourOf(p)
	if err := cmp.Or(err, checkUsage(p)); err != nil {
		return &pod.Refusal{Reason: "InvalidSimulation", Message: err.Error()}
	}
	return n.allocations.reserve(p, func(load *admission.Load) *pod.Refusal {
		return admission.Check(logger, node, p, load)
	})
}

// isNew reports whether the pod has not been admitted or refused yet.
func isNew(p *v1.Pod) bool {
	return p.Status.StartTime == nil && !pod.IsOver(p.Status.Phase) && p.DeletionTimestamp == nil
}

// lookUp returns a pod and its simulated node. Each is nil if it does not exist or is not simulated.
func (n *Nodes) lookUp(key types.NamespacedName) (*v1.Pod, *v1.Node, error) {
	obj, exists, err := n.pods.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		return nil, nil, err
	}
	p, ok := obj.(*v1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("the pod informer holds a %T", obj)
	}
	if !n.isSimulated(p) {
		return nil, nil, nil
	}
	return p, n.node(p.Spec.NodeName), nil
}

func (n *Nodes) modelOf(key types.NamespacedName, p *v1.Pod) *model {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.models[key]; m != nil && m.uid == p.UID {
		return m
	}
	return modelFrom(p)
}

func (n *Nodes) setModel(key types.NamespacedName, m *model) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m == nil {
		delete(n.models, key)
		return
	}
	n.models[key] = m
}

// write writes a status if it differs from the API's, and then deletes a terminating pod that is finished.
// It updates the whole status, which costs the server less than a patch, with the resource version that
// it was decided from.
func (n *Nodes) write(ctx context.Context, p *v1.Pod, s outcome) (*v1.Pod, error) {
	if !equality.Semantic.DeepEqual(p.Status, s.status) {
		next := *p
		next.Status = s.status
		written, err := n.options.UpdateStatus(ctx, &next)
		if apierrors.IsNotFound(err) {
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		p = written
	}
	if !s.finished || p.DeletionTimestamp == nil {
		return p, nil
	}
	err := n.options.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // the pod was deleted, or recreated under its name
	}
	return p, err
}

// recordWarnings records the warnings among the events.
func (n *Nodes) recordWarnings(p *v1.Pod, events []pod.Event) {
	for _, e := range events {
		if e.Type != v1.EventTypeWarning {
			continue
		}
		ref := pod.Reference(p)
		if e.Container != "" {
			ref = pod.ContainerReference(p, e.Container)
		}
		n.options.Recorder.Event(ref, e.Type, e.Reason, e.Message)
	}
}

func internalIPs(node *v1.Node) []string {
	var ips []string
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			ips = append(ips, a.Address)
		}
	}
	return ips
}
