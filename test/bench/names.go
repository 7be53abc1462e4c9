// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// namedServices is the number of Services that the DNS server has names for, each with two endpoints.
	namedServices = 10_000
	// askers is the number of concurrent clients, askingTime the time for which each sends queries.
	askers     = 8
	askingTime = 10 * time.Second
	// askRate is the number of queries a second whose latency is measured.
	askRate = 2000
	// answerLimit is when a query counts as lost.
	answerLimit = 2 * time.Second
)

// withNames measures with a cluster with many Services. server is its address for pods.
func withNames(ctx context.Context, b *bench, measure func(c *cluster, server string) error) error {
	c, client, err := b.startWithClient(ctx, realNode...)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := createServices(ctx, client, sliceOf); err != nil {
		return err
	}
	service, err := client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, "kube-dns", metav1.GetOptions{})
	if err != nil {
		return err
	}
	server := net.JoinHostPort(service.Spec.ClusterIP, "53")
	if err := awaitName(ctx, server, namedServices-1); err != nil {
		return err
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.profiled(ctx, func() error { return measure(c, server) })
}

// settle waits until the server uses less than a tenth of a processor: it still compacts, and writes rules, after the
// objects have been created.
func (c *cluster) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for used := c.processorTime(); ; {
		pause(ctx, time.Second)
		now := c.processorTime()
		if now-used < time.Second/10 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the server is still busy: %w", ctx.Err())
		}
		used = now
	}
}

// createServices creates the Services and their EndpointSlices.
func createServices(ctx context.Context, client *kubernetes.Clientset, sliceOf func(service string, i int) *discoveryv1.EndpointSlice) error {
	var group errgroup.Group
	group.SetLimit(clients)
	for i := range namedServices {
		group.Go(func() error {
			name := serviceName(i)
			_, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, sliceOf(name, i), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

func serviceName(i int) string { return fmt.Sprintf("svc-%d", i) }

// sliceOf returns a slice with two endpoints that do not exist.
func sliceOf(service string, i int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for j := range 2 {
		address := netip.AddrFrom4([4]byte{10, byte(200 + j), byte(i >> 8), byte(i)})
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}})
	}
	return slice
}

// ask sends a query on a connection and waits for its answer.
func ask(conn *dns.Conn, service int) error {
	query := new(dns.Msg).SetQuestion(serviceName(service)+".default.svc.cluster.local.", dns.TypeA)
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	if err := conn.WriteMsg(query); err != nil {
		return err
	}
	answer, err := conn.ReadMsg()
	if err != nil {
		return err
	}
	if answer.Id != query.Id || len(answer.Answer) != 1 {
		return fmt.Errorf("the answer for svc-%d is %v", service, answer)
	}
	return nil
}

// awaitName waits until the name of a Service resolves.
func awaitName(ctx context.Context, server string, service int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		conn, err := dns.Dial("udp", server)
		if err == nil {
			err = ask(conn, service)
			_ = conn.Close()
		}
		if err == nil {
			return nil
		}
		pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return err
		}
	}
}

// dnsAnswers returns how many queries the server answers in one second of its processor time.
func dnsAnswers(ctx context.Context, b *bench) (rate float64, err error) {
	err = withNames(ctx, b, func(c *cluster, server string) error {
		used, began := c.processorTime(), time.Now()
		var group errgroup.Group
		counts := make([]int, askers)
		for i := range counts {
			group.Go(func() (err error) {
				counts[i], err = askFor(ctx, server, askingTime)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		total := 0
		for _, n := range counts {
			total += n
		}
		fmt.Printf("  %.0f answers/s from %d clients\n", float64(total)/time.Since(began).Seconds(), askers)
		rate = float64(total) / (c.processorTime() - used).Seconds()
		return nil
	})
	return rate, err
}

// askFor asks one query after the other, and returns how many were answered.
func askFor(ctx context.Context, server string, d time.Duration) (answered int, err error) {
	conn, err := dns.Dial("udp", server)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for began := time.Now(); time.Since(began) < d && ctx.Err() == nil; answered++ {
		if err := ask(conn, rand.N(namedServices)); err != nil {
			return answered, err
		}
	}
	return answered, ctx.Err()
}

// dnsLatency returns the 99th percentile of the time that a query takes at a steady rate, in milliseconds.
func dnsLatency(ctx context.Context, b *bench) (p99 float64, err error) {
	err = withNames(ctx, b, func(_ *cluster, server string) error {
		took := make([][]time.Duration, askers)
		var group errgroup.Group
		for i := range took {
			group.Go(func() (err error) {
				took[i], err = askSteadily(ctx, server)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		var all []time.Duration
		for _, each := range took {
			all = append(all, each...)
		}
		p99 = percentiles(all)[1].Seconds() * 1000
		return nil
	})
	return p99, err
}

// askSteadily asks at the rate of one client, whatever the answers take.
func askSteadily(ctx context.Context, server string) (took []time.Duration, err error) {
	conn, err := dns.Dial("udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ticker := time.NewTicker(askers * time.Second / askRate)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < askingTime && ctx.Err() == nil; {
		due := <-ticker.C
		if err := ask(conn, rand.N(namedServices)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(due))
	}
	return took, ctx.Err()
}
