// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/kindred-project/kindred/internal/node/pod"
)

// somePods finds pods in a list.
type somePods struct {
	pod.Lookup
	pods []*v1.Pod
}

func (s somePods) Pods() []*v1.Pod { return s.pods }

func (s somePods) Pod(namespace, name string, _ types.UID) (*v1.Pod, bool) {
	for _, p := range s.pods {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

func serve(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s.Clock = clock.RealClock{}
	done := make(chan struct{})
	go func() {
		s.Run(ctx, socket)
		close(done)
	}()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		<-done
		_ = os.RemoveAll(dir)
	})
	return conn
}

// TestServer: agents see the devices of running pods' sidecars and app containers.
func TestServer(t *testing.T) {
	named := func(name string, phase v1.PodPhase) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: v1.PodStatus{Phase: phase},
			Spec: v1.PodSpec{
				InitContainers: []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}},
				Containers:     []v1.Container{{Name: "app"}},
			},
		}
	}
	conn := serve(t, &Server{
		Lookup: somePods{pods: []*v1.Pod{named("runs", v1.PodRunning), named("over", v1.PodSucceeded)}},
		Claims: func(p *v1.Pod, c *v1.Container) []*api.DynamicResource {
			return []*api.DynamicResource{{ClaimName: p.Name + " " + c.Name}}
		},
		Resources: func(_ types.UID, container string) *api.ContainerResources {
			return &api.ContainerResources{Name: container, CpuIds: []int64{3}, Devices: []*api.ContainerDevices{{ResourceName: "example.com/d", DeviceIds: []string{"d1"}}}}
		},
		Allocatable: func() *api.AllocatableResourcesResponse {
			return &api.AllocatableResourcesResponse{CpuIds: []int64{1, 3}}
		},
	})
	client := api.NewPodResourcesListerClient(conn)
	devices := []*api.ContainerDevices{{ResourceName: "example.com/d", DeviceIds: []string{"d1"}}}
	resources := func(name string) *api.PodResources {
		return &api.PodResources{Namespace: "ns", Name: name, Containers: []*api.ContainerResources{
			{Name: "sidecar", CpuIds: []int64{3}, Devices: devices, DynamicResources: []*api.DynamicResource{{ClaimName: name + " sidecar"}}},
			{Name: "app", CpuIds: []int64{3}, Devices: devices, DynamicResources: []*api.DynamicResource{{ClaimName: name + " app"}}},
		}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list, err := client.List(ctx, &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if diff := cmp.Diff([]*api.PodResources{resources("runs")}, list.GetPodResources(), protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	got, err := client.Get(ctx, &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "over"})
	if diff := cmp.Diff(resources("over"), got.GetPodResources(), protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("get: %v (-want +got):\n%s", err, diff)
	}
	if _, err := client.Get(ctx, &api.GetPodResourcesRequest{PodNamespace: "ns", PodName: "none"}); err == nil || !strings.Contains(err.Error(), "pod none in namespace ns not found") {
		t.Errorf("get: %v", err)
	}
	allocatable, err := client.GetAllocatableResources(ctx, &api.AllocatableResourcesRequest{})
	if err != nil || !slices.Equal(allocatable.CpuIds, []int64{1, 3}) {
		t.Errorf("allocatable: %v, %v", allocatable, err)
	}
	older, err := alpha.NewPodResourcesListerClient(conn).List(ctx, &alpha.ListPodResourcesRequest{})
	if err != nil || len(older.PodResources) != 2 || older.PodResources[0].Containers[0].Devices[0].DeviceIds[0] != "d1" {
		t.Errorf("v1alpha1: %v, %v", older, err)
	}
}
