// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/kindred-project/kindred/internal/network/nft"
)

// many returns a table with the rules of many Services with two endpoints each, which is not written yet.
func many(b *testing.B, n int) *nft.Table {
	b.Helper()
	table, err := nft.Open("kindred-load")
	if err != nil {
		b.Skip(err)
	}
	table.Put("", Base(Config{}))
	for i := range n {
		table.Put(fmt.Sprint(i), Rules(numbered(i), []*discoveryv1.EndpointSlice{endpointsFor(i, 0)}, here))
	}
	return table
}

func numbered(i int) *v1.Service {
	svc := web(nil)
	svc.Name = fmt.Sprint(i)
	svc.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i/250, i%250)
	svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	return svc
}

func endpointsFor(i, change int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To(int32(80)), Protocol: ptr.To(v1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 200+change%50, i/250, i%250)}, NodeName: ptr.To("here")},
			{Addresses: []string{fmt.Sprintf("10.100.%d.%d", i/250, i%250)}},
		},
	}
}

func writeAll(b *testing.B, table *nft.Table) {
	b.Helper()
	if refused, err := table.Write(context.Background()); err != nil || len(refused) > 0 {
		b.Fatal(refused, err)
	}
}

func BenchmarkLoad10000(b *testing.B) {
	for b.Loop() {
		table := many(b, 10000)
		writeAll(b, table)
		b.StopTimer()
		_ = table.Delete(context.Background())
		b.StartTimer()
	}
}

// BenchmarkChangeAmong10000 changes the endpoints of one Service. The figure ms-to-effect is the time until the kernel
// uses the new rules. The nft program returns later, because the kernel lets it wait until no packet can be using the
// old ones.
func BenchmarkChangeAmong10000(b *testing.B) {
	table := many(b, 10000)
	writeAll(b, table)
	effective := watchKernel(b)
	var total time.Duration
	change := 0
	for b.Loop() {
		change++
		i := change * 37 % 10000
		effective.Store(nil)
		began := time.Now()
		table.Put(fmt.Sprint(i), Rules(numbered(i), []*discoveryv1.EndpointSlice{endpointsFor(i, 1+change%49)}, here))
		writeAll(b, table)
		at := effective.Load()
		if at == nil {
			b.Fatal("the kernel has not reported the change")
		}
		total += at.Sub(began)
	}
	b.StopTimer()
	b.ReportMetric(float64(total.Microseconds())/1000/float64(change), "ms-to-effect")
	_ = table.Delete(context.Background())
}

// watchKernel returns the time of the kernel's first report of changed rules since it was last set to nil.
func watchKernel(b *testing.B) *atomic.Pointer[time.Time] {
	b.Helper()
	reports, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err == nil {
		err = unix.Bind(reports, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	}
	if err != nil {
		b.Fatal(err)
	}
	first := &atomic.Pointer[time.Time]{}
	go func() { // until the process ends
		buffer := make([]byte, 1<<16)
		for {
			if _, _, err := unix.Recvfrom(reports, buffer, 0); err != nil {
				return
			}
			now := time.Now()
			first.CompareAndSwap(nil, &now)
		}
	}()
	return first
}
