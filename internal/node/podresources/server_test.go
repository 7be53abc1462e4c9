// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	alpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

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
	done := make(chan error)
	go func() { done <- s.Serve(ctx, socket) }()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
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

func TestLimit(t *testing.T) {
	handle := func(context.Context, any) (any, error) { return nil, nil }
	intercept := limit(flowcontrol.NewFakeNeverRateLimiter())
	_, err := intercept(t.Context(), nil, nil, handle)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// The API is served as soon as the cause of a failure is gone, and the failure is logged once.
func TestRunRetries(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	obstacle := filepath.Join(dir, "pod-resources")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	s := &Server{Lookup: somePods{}, Clock: clock}
	done := make(chan struct{})
	go func() {
		s.Run(ctx, filepath.Join(obstacle, "kubelet.sock"))
		close(done)
	}()
	for failures := 0; failures < 3; time.Sleep(time.Millisecond) {
		if !clock.HasWaiters() {
			continue
		}
		if failures++; failures == 3 {
			_ = os.Remove(obstacle)
		}
		clock.Step(2 * time.Minute)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(obstacle, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wait, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := api.NewPodResourcesListerClient(conn).List(wait, &api.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
	if logs := logger.GetSink().(ktesting.Underlier).GetBuffer().Data(); len(logs) != 1 {
		t.Errorf("logged %+v", logs)
	}
}
