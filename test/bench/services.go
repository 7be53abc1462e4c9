// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	// readyRuns is the number of times that the endpoint becomes ready.
	readyRuns = 100
	// dialPause is the time between two attempts to connect.
	dialPause = time.Millisecond
	// gate is the readiness gate by which the benchmark makes a pod ready.
	gate = "kindred.dev/bench"
	// streams is the number of measurements of each address, streamTime the length of one.
	streams    = 5
	streamTime = 2 * time.Second
)

// endpoint is a pod behind a Service, which listens on port 8080.
type endpoint struct {
	client    *kubernetes.Clientset
	service   *corev1.Service
	podIP     string
	clusterIP string
}

// startEndpoint creates the pod, which runs a command and has readiness gates, and the Service, and waits until the pod
// runs.
func startEndpoint(ctx context.Context, client *kubernetes.Clientset, command string, gates ...corev1.PodReadinessGate) (*endpoint, error) {
	p := pod("endpoint")
	p.Spec.Containers[0].Command = []string{"sh", "-c", command}
	p.Spec.ReadinessGates = gates
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	events, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "endpoint"},
		Spec:       corev1.ServiceSpec{Selector: p.Labels, Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	e := &endpoint{client: client, service: service, clusterIP: service.Spec.ClusterIP}
	return e, until(ctx, events, func(event watch.Event) bool {
		now, ok := event.Object.(*corev1.Pod)
		if !ok || now.Status.Phase != corev1.PodRunning {
			return false
		}
		e.podIP = now.Status.PodIP
		return true
	})
}

// setReady sets the condition of the readiness gate.
func (e *endpoint) setReady(ctx context.Context, ready corev1.ConditionStatus) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, gate, ready)
	_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, "endpoint", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// readiness has the times from the moment at which a client sees the pod Ready.
type readiness struct{ toPacket, toSlice []time.Duration }

// measureReadiness makes the endpoint ready and unready again, and returns how long the first packet and the slice take.
func measureReadiness(ctx context.Context, b *bench) (r readiness, err error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return r, err
	}
	defer c.stop()
	e, err := startEndpoint(ctx, client, "httpd -f -p 8080", corev1.PodReadinessGate{ConditionType: gate})
	if err != nil {
		return r, err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return r, err
	}
	defer pods.Stop()
	endpointSlices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + e.service.Name,
	})
	if err != nil {
		return r, err
	}
	defer endpointSlices.Stop()
	err = c.profiled(ctx, func() error {
		for range readyRuns {
			if err := e.once(ctx, pods, endpointSlices, &r); err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

// once makes the endpoint ready, measures, and waits until it is unready for all again.
func (e *endpoint) once(ctx context.Context, pods, endpointSlices watch.Interface, r *readiness) error {
	connected, sliced := make(chan time.Time, 1), make(chan time.Time, 1)
	dialing, stop := context.WithTimeout(ctx, limit)
	defer stop()
	go func() { connected <- firstConnection(dialing, e.clusterIP) }()
	failed := make(chan error, 1)
	go func() {
		failed <- until(ctx, endpointSlices, hasReadyEndpoint)
		sliced <- time.Now()
	}()
	if err := e.setReady(ctx, corev1.ConditionTrue); err != nil {
		return err
	}
	if err := until(ctx, pods, isReady); err != nil {
		return err
	}
	ready := time.Now()
	if err := <-failed; err != nil {
		return err
	}
	at := <-connected
	if at.IsZero() {
		return fmt.Errorf("no connection to the Service within %v", limit)
	}
	// What is seen before the readiness itself took no time.
	r.toPacket = append(r.toPacket, max(0, at.Sub(ready)))
	r.toSlice = append(r.toSlice, max(0, (<-sliced).Sub(ready)))
	if err := e.setReady(ctx, corev1.ConditionFalse); err != nil {
		return err
	}
	if err := until(ctx, pods, func(event watch.Event) bool { return !isReady(event) }); err != nil {
		return err
	}
	if err := until(ctx, endpointSlices, func(event watch.Event) bool { return !hasReadyEndpoint(event) }); err != nil {
		return err
	}
	return awaitRefused(ctx, e.clusterIP)
}

func hasReadyEndpoint(event watch.Event) bool {
	slice, ok := event.Object.(*discoveryv1.EndpointSlice)
	return ok && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Conditions.Ready != nil && *e.Conditions.Ready
	})
}

// connects reports whether a connection to port 8080 of an address succeeds.
func connects(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, "8080"))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// firstConnection returns when a connection succeeds; the zero time if none does until ctx is done.
func firstConnection(ctx context.Context, address string) time.Time {
	for ctx.Err() == nil {
		if connects(ctx, address) {
			return time.Now()
		}
		pause(ctx, dialPause)
	}
	return time.Time{}
}

// awaitRefused waits until connections fail.
func awaitRefused(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for connects(ctx, address) {
		pause(ctx, dialPause)
	}
	return ctx.Err()
}

// firstPacket returns a measurement of the median (0) or the 99th percentile (1).
func firstPacket(percentile int) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (float64, error) {
		r, err := measureReadiness(ctx, b)
		if err != nil {
			return 0, err
		}
		return percentiles(r.toPacket)[percentile].Seconds() * 1000, nil
	}
}

func sliceFollows(ctx context.Context, b *bench) (float64, error) {
	r, err := measureReadiness(ctx, b)
	if err != nil {
		return 0, err
	}
	return percentiles(r.toSlice)[1].Seconds() * 1000, nil
}

// clusterIPThroughput returns the throughput of TCP from a pod to the machine through its Service, divided by that of its
// own address. They are measured in turns.
func clusterIPThroughput(ctx context.Context, b *bench) (float64, error) {
	c, client, err := b.startWithNode(ctx)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	e, err := startEndpoint(ctx, client, "truncate -s 64G /tmp/zeros; httpd -f -p 8080 -h /tmp")
	if err != nil {
		return 0, err
	}
	connecting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if firstConnection(connecting, e.clusterIP).IsZero() {
		return 0, fmt.Errorf("no connection to the Service within %v", limit)
	}
	var own, service []float64
	for range streams {
		for address, rates := range map[string]*[]float64{e.podIP: &own, e.clusterIP: &service} {
			rate, err := throughput(ctx, address)
			if err != nil {
				return 0, err
			}
			*rates = append(*rates, rate)
		}
	}
	slices.Sort(own)
	slices.Sort(service)
	fmt.Printf("  pod %.1f Gbit/s, ClusterIP %.1f Gbit/s\n", own[streams/2]/1e9, service[streams/2]/1e9)
	return service[streams/2] / own[streams/2], nil
}

// throughput returns how many bits a second one connection receives of a large file.
func throughput(ctx context.Context, address string) (float64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, "8080"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /zeros HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := conn.SetDeadline(began.Add(streamTime)); err != nil {
		return 0, err
	}
	received, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the server ended the connection: %w", err)
	}
	return float64(received) * 8 / time.Since(began).Seconds(), nil
}
