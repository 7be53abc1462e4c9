// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// nodeClients is the number of requests that the simulated nodes send at the same time.
const nodeClients = 64

// nodes simulates the nodes of an upstream control plane with the writes of Kindred's simulated nodes: with one write of its status, a
// pod is Running as soon as it is bound, or has succeeded if it is not to be restarted; and as soon as it is to be deleted, its
// containers have ended with another, and it is gone. Kubelets have more work than that, to be fair.
type nodes struct {
	client  kubernetes.Interface
	work    chan *corev1.Pod
	address atomic.Uint32
	// ended are the UIDs of pods whose deletion has begun.
	ended sync.Map
}

// startNodes creates nodes and simulates them until ctx ends.
func startNodes(ctx context.Context, config *rest.Config, count int) error {
	client, err := newClient(config)
	if err != nil {
		return err
	}
	for i := range count {
		if err := createNode(ctx, client, fmt.Sprint("node-", i)); err != nil {
			return err
		}
	}
	if err := awaitNodes(ctx, client, count); err != nil {
		return err
	}
	events, err := watchPods(ctx, client.CoreV1().Pods(metav1.NamespaceAll))
	if err != nil {
		return err
	}
	if client, err = newClient(config); err != nil {
		return err
	}
	n := &nodes{client: client, work: make(chan *corev1.Pod, manyReplicas)}
	go n.watch(ctx, events)
	for range nodeClients {
		go n.run()
	}
	return nil
}

func createNode(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.ResourceVersion = "" // controllers write to it as well
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// awaitNodes waits until pods can be scheduled: the API taints new nodes, and a controller removes the
// taint of those that are ready.
func awaitNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	events, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	return await(ctx, events, func(e watch.Event) bool {
		if node, ok := e.Object.(*corev1.Node); ok && len(node.Spec.Taints) == 0 {
			ready[node.Name] = true
		}
		return len(ready) == count
	})
}

func (n *nodes) watch(ctx context.Context, events watch.Interface) {
	defer close(n.work)
	defer events.Stop()
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return
			}
			if pod, isPod := e.Object.(*corev1.Pod); isPod && e.Type != watch.Deleted && n.isDue(pod) {
				n.work <- pod
			}
		case <-ctx.Done():
			return
		}
	}
}

// isDue reports whether a node has something to do for a pod.
func (n *nodes) isDue(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	if pod.DeletionTimestamp == nil {
		return pod.Status.Phase == corev1.PodPending
	}
	_, ended := n.ended.LoadOrStore(pod.UID, true)
	return !ended
}

func (n *nodes) run() {
	for pod := range n.work {
		err := n.advance(pod)
		// The server refuses connections once the measurement is over.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !utilnet.IsConnectionRefused(err) {
			fmt.Fprintf(os.Stderr, "bench: simulate pod %s: %v\n", pod.Name, err)
		}
	}
}

// advance takes a pod one step further. It has no context: requests in progress when the measurement ends
// are completed or refused by the server, which then stops.
func (n *nodes) advance(pod *corev1.Pod) error {
	ctx := context.Background()
	pods := n.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		if pod.Status.Phase == corev1.PodRunning {
			succeed(&pod.Status)
			pod.ResourceVersion = "" // controllers write to it as well
			if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	pod.Status = n.running(pod)
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		succeed(&pod.Status)
	}
	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func (n *nodes) running(pod *corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, QOSClass: pod.Status.QOSClass, Conditions: pod.Status.Conditions}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	number := n.address.Add(1)
	status.PodIP = netip.AddrFrom4([4]byte{198, 18, byte(number >> 8), byte(number)}).String()
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	return status
}

// succeed ends the containers of a running pod.
func succeed(status *corev1.PodStatus) {
	status.Phase = corev1.PodSucceeded
	for i := range status.Conditions {
		if t := status.Conditions[i].Type; t == corev1.PodReady || t == corev1.ContainersReady {
			status.Conditions[i].Status, status.Conditions[i].Reason = corev1.ConditionFalse, "PodCompleted"
		}
	}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		started := c.State.Running.StartedAt
		c.Ready, c.Started = false, ptr.To(false)
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: started, FinishedAt: started}}
	}
}
