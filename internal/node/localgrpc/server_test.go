// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package localgrpc

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// lister implements the PodResources API.
type lister struct {
	api.UnimplementedPodResourcesListerServer
}

func (lister) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	return &api.ListPodResourcesResponse{}, nil
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
	counted := ""
	s := &Server{
		Name: "PodResources", Clock: clock,
		Register:  func(r grpc.ServiceRegistrar) { api.RegisterPodResourcesListerServer(r, lister{}) },
		Requested: func(version, method string, err error) { counted += version + " " + method },
	}
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
	if counted != "v1 List" {
		t.Errorf("counted %q", counted)
	}
	if logs := logger.GetSink().(ktesting.Underlier).GetBuffer().Data(); len(logs) != 1 {
		t.Errorf("logged %+v", logs)
	}
}
