// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// checkPodsAPI checks that a client on the node lists, gets and watches the pod "measured", and deletes it meanwhile. It is
// test/e2e_node/pods_api_test.go of upstream for one pod.
func checkPodsAPI(t *testing.T, s *session, root string) {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(root, "pods-api", "pods-api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := podsapi.NewPodsClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	list, err := client.ListPods(ctx, &podsapi.ListPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var measured *v1.Pod
	for _, encoded := range list.Pods {
		if p := decodePod(t, encoded); p.Namespace == s.namespace && p.Name == "measured" {
			measured = p
		}
	}
	if measured == nil || !isReadyPod(measured) || len(measured.Spec.Containers) != 1 {
		t.Fatalf("the node lists %+v", measured)
	}
	one, err := client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: string(measured.UID)})
	if err != nil {
		t.Fatal(err)
	}
	if p := decodePod(t, one.Pod); p.UID != measured.UID || !isReadyPod(p) {
		t.Errorf("the node has %+v", p)
	}
	if _, err := client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a pod that is not there: %v", err)
	}

	stream, err := client.WatchPods(ctx, &podsapi.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	isListed, isTerminating := false, false
	for {
		e, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == podsapi.EventType_INITIAL_SYNC_COMPLETE {
			if !isListed {
				t.Error("the watch begins without the pod")
			}
			s.kubectl("delete", "pod", "measured", "--wait=false")
			continue
		}
		p := decodePod(t, e.Pod)
		if p.UID != measured.UID {
			continue
		}
		switch e.Type {
		case podsapi.EventType_ADDED:
			if isListed {
				t.Error("the pod is added twice")
			}
			isListed = true
		case podsapi.EventType_MODIFIED:
			if isTerminating && p.DeletionTimestamp == nil {
				t.Error("the pod is no longer terminating")
			}
			isTerminating = p.DeletionTimestamp != nil
		case podsapi.EventType_DELETED:
			if !isTerminating || p.Name != "measured" || p.Namespace != s.namespace {
				t.Errorf("%s/%s is deleted; it was terminating: %t", p.Namespace, p.Name, isTerminating)
			}
			return
		}
	}
}

func decodePod(t *testing.T, encoded []byte) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := p.Unmarshal(encoded); err != nil {
		t.Fatal(err)
	}
	return p
}
