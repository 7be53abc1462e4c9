// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// Key is the label of simulated nodes, and the key of their taint.
const Key = "kindred.dev/simulated"

// Options are the nodes to simulate and what they depend on.
type Options struct {
	// Client is used for all nodes.
	Client kubernetes.Interface
	// UpdateStatus writes the status of a pod, as pods of Client do, which is the default.
	UpdateStatus func(context.Context, *v1.Pod) (*v1.Pod, error)
	// UpdateLease updates a Lease that exists, as leases of Client do, which is the default.
	UpdateLease func(context.Context, *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// Informers provides the informers of pods and nodes. The caller starts them after New.
	Informers informers.SharedInformerFactory
	// Recorder records warnings. If nil, they are dropped.
	Recorder record.EventRecorder
	// Count is the number of nodes. Their names are NamePrefix, "sim-" by default, and a number
	// from 0.
	Count      int
	NamePrefix string
	// Taint gives the nodes the taint kindred.dev/simulated:NoSchedule.
	Taint bool
	// Capacity overrides resources of a node. The defaults are 32 CPUs, 256Gi of
	// memory, 1Ti of ephemeral storage, 110 pods.
	Capacity v1.ResourceList
	// Version is the kubelet version of the nodes, such as v1.37.1.
	Version string
	// Workers is how many pods are processed concurrently, by default one for each 20 nodes, but at least 32. They mostly wait
	// for the API.
	Workers int
	// Clock defaults to the real clock.
	Clock clock.WithTicker
}

func defaultCapacity() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("32"),
		v1.ResourceMemory:           resource.MustParse("256Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		v1.ResourcePods:             resource.MustParse("110"),
	}
}

func (o Options) withDefaults() (Options, error) {
	if o.Count < 0 || o.Count >= 1<<(32-nodeAddresses.Bits())-1 {
		return o, fmt.Errorf("%d simulated nodes requested; between 0 and %d are possible", o.Count, 1<<(32-nodeAddresses.Bits())-2)
	}
	if o.NamePrefix == "" {
		o.NamePrefix = "sim-"
	}
	if o.Workers <= 0 {
		o.Workers = concurrency(o.Count, 32)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.UpdateStatus == nil {
		o.UpdateStatus = func(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
			return o.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		}
	}
	if o.UpdateLease == nil {
		o.UpdateLease = func(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
			return o.Client.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
		}
	}
	if o.Recorder == nil {
		o.Recorder = &record.FakeRecorder{} // drops events, because it has no channel
	}
	capacity := defaultCapacity()
	maps.Copy(capacity, o.Capacity)
	o.Capacity = capacity
	return o, nil
}

func (o Options) nodeName(i int) string { return o.NamePrefix + strconv.Itoa(i) }

// nodeAddress returns the address of the i-th node.
func nodeAddress(i int) string {
	base := nodeAddresses.Addr().As4()
	n := i + 1
	return fmt.Sprintf("%d.%d.%d.%d", base[0], base[1], n>>8, n&0xff)
}
