// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func storage(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

func TestPendingSize(t *testing.T) {
	state := func(s v1.ClaimResourceStatus) map[v1.ResourceName]v1.ClaimResourceStatus {
		return map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: s}
	}
	for _, tt := range []struct {
		name   string
		status v1.PersistentVolumeClaimStatus
		want   string
	}{
		{"as large", v1.PersistentVolumeClaimStatus{Capacity: storage("2Gi")}, ""},
		{"larger volume", v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi")}, "2Gi"},
		{"pending", v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi"), AllocatedResources: storage("1536Mi"),
			AllocatedResourceStatuses: state(v1.PersistentVolumeClaimNodeResizePending)}, "1536Mi"},
		{"in progress", v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi"), AllocatedResources: storage("2Gi"),
			AllocatedResourceStatuses: state(v1.PersistentVolumeClaimNodeResizeInProgress)}, "2Gi"},
		{"infeasible", v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi"), AllocatedResources: storage("2Gi"),
			AllocatedResourceStatuses: state(v1.PersistentVolumeClaimNodeResizeInfeasible)}, ""},
		{"with the controller", v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi"), AllocatedResources: storage("2Gi")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bound{claim: &v1.PersistentVolumeClaim{Status: tt.status}, pv: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{Capacity: storage("2Gi")}}}
			got := ""
			if size := pendingSize(b); size != nil {
				got = size.String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// growing makes the volume of a fixture larger than its claim.
func growing(t *testing.T, f *csiFixture) {
	t.Helper()
	claim, pv := f.claim.DeepCopy(), f.pv.DeepCopy()
	pv.Spec.Capacity = storage("2Gi")
	claim.Status.Capacity, claim.Status.AllocatedResources = storage("1Gi"), storage("2Gi")
	claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	for _, err := range []error{
		f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), pv, ""),
		f.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), claim, "ns"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f *csiFixture) claimStatus(t *testing.T) v1.PersistentVolumeClaimStatus {
	t.Helper()
	claim, err := f.client.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim.Status
}

// TestExpand: a volume of a running pod is expanded once, and its claim says so.
func TestExpand(t *testing.T) {
	f := newCSIFixture(t)
	f.driver.Capabilities = append(f.driver.Capabilities, csispec.NodeServiceCapability_RPC_EXPAND_VOLUME)
	pod := podWith(claimVolume("v", false))
	pod.Spec.NodeName = "node"
	f.prepared(t, pod)
	f.driver.Took()
	growing(t, f)
	f.prepared(t, pod)
	f.prepared(t, pod)
	f.took(t, "Expand vol")
	got := f.claimStatus(t)
	if size := got.Capacity[v1.ResourceStorage]; size.String() != "2Gi" || len(got.Conditions) > 0 || len(got.AllocatedResourceStatuses) > 0 {
		t.Errorf("status %+v", got)
	}
	event := `Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv" node`
	if diff := cmp.Diff([]string{event, event}, f.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.tornDown(t, pod.UID)
}

// TestExpandFails: the claim says why. What cannot succeed is not tried again.
func TestExpandFails(t *testing.T) {
	for _, tt := range []struct {
		code  codes.Code
		state v1.ClaimResourceStatus
		calls []string // of the next attempt
		event string
	}{
		{codes.Internal, v1.PersistentVolumeClaimNodeResizeInProgress, []string{"Expand vol"},
			`VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv" : Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = no`},
		{codes.OutOfRange, v1.PersistentVolumeClaimNodeResizeInfeasible, nil,
			`VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv" : Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no`},
	} {
		t.Run(tt.code.String(), func(t *testing.T) {
			f := newCSIFixture(t)
			f.driver.Capabilities = append(f.driver.Capabilities, csispec.NodeServiceCapability_RPC_EXPAND_VOLUME)
			pod := podWith(claimVolume("v", false))
			f.prepared(t, pod)
			growing(t, f)
			f.driver.Before = func(call string) error {
				if call == "Expand" {
					return status.Error(tt.code, "no")
				}
				return errors.New("unexpected")
			}
			if diff := cmp.Diff([]string{tt.event}, events(f.Prepare(t.Context(), pod))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			got := f.claimStatus(t)
			if got.AllocatedResourceStatuses[v1.ResourceStorage] != tt.state || len(got.Conditions) != 2 || got.Conditions[1].Type != v1.PersistentVolumeClaimNodeResizeError {
				t.Errorf("status %+v", got)
			}
			f.driver.Before = nil
			f.driver.Took()
			f.prepared(t, pod)
			f.took(t, tt.calls...)
			f.tornDown(t, pod.UID)
		})
	}
}
