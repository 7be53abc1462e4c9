// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/apiserver"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
	"github.com/kindred-project/kindred/internal/part"
)

// direct writes objects as a part of the cluster, without encoding them.
type direct struct {
	api   apiserver.Client
	seats *seats
	as    part.Identity
}

func (d direct) write(ctx context.Context, u urgency, method, path string, object runtime.Object) (runtime.Object, error) {
	leave, err := d.seats.take(ctx, u)
	if err != nil {
		return nil, err
	}
	defer leave()
	return d.api.Write(ctx, d.as.Info, d.as.UserAgent(), method, path, object)
}

// updatePodStatus updates the status of a pod.
func (d direct) updatePodStatus(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/status", pod.Namespace, pod.Name)
	updated, err := d.write(ctx, placed, http.MethodPut, path, pod)
	if err != nil {
		return nil, err
	}
	return updated.(*corev1.Pod), nil
}

// updateLease updates a Lease. It takes no seat, because a Lease that is renewed late is one that is lost.
func (d direct) updateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	path := fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", lease.Namespace, lease.Name)
	updated, err := d.api.Write(ctx, d.as.Info, d.as.UserAgent(), http.MethodPut, path, lease)
	if err != nil {
		return nil, err
	}
	return updated.(*coordinationv1.Lease), nil
}

// podClient is a controller's client that creates pods without encoding them, and lists them without copying them into lists.
type podClient struct {
	client.Client
	pods.Cached
	direct
}

// Create implements client.Client.
func (c podClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	pod, ok := object.(*corev1.Pod)
	if !ok || len(options) > 0 {
		return c.Client.Create(ctx, object, options...)
	}
	created, err := c.write(ctx, started, http.MethodPost, fmt.Sprintf("/api/v1/namespaces/%s/pods", pod.Namespace), pod)
	if err != nil {
		return err
	}
	*pod = *created.(*corev1.Pod)
	return nil
}

// bind binds a pod to a node.
func (d direct) bind(ctx context.Context, binding *corev1.Binding) error {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/binding", binding.Namespace, binding.Name)
	_, err := d.write(ctx, placed, http.MethodPost, path, binding)
	return err
}

// eventCreator is a sink that creates events without encoding them.
type eventCreator struct {
	events.EventSink
	direct
}

func newEventCreator(client kubernetes.Interface, d direct) events.EventSink {
	return eventCreator{&events.EventSinkImpl{Interface: client.EventsV1()}, d}
}

// Create implements events.EventSink.
func (c eventCreator) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := c.write(ctx, started, http.MethodPost, fmt.Sprintf("/apis/events.k8s.io/v1/namespaces/%s/events", event.Namespace), event)
	if err != nil {
		return nil, err
	}
	return created.(*eventsv1.Event), nil
}
