// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/kindred-project/kindred/internal/servers"
)

// TestRelease: a leader that gives up releases its lease, and leaves the lease of another server that has led since.
func TestRelease(t *testing.T) {
	for name, test := range map[string]struct {
		holder string
		want   bool
	}{
		"a server that leads":            {"self", true},
		"a server that was stopped long": {"other", false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			var givesUp, released atomic.Bool
			client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return givesUp.Load(), leaseOf(test.holder), nil
			})
			client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
				lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
				if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
					released.Store(true)
				}
				return true, lease, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: newLock(client, "self"), LeaseDuration: time.Hour, RenewDeadline: time.Minute, RetryPeriod: time.Second, ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) {
						givesUp.Store(true)
						cancel()
					},
					OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			elector.Run(ctx)
			if released.Load() != test.want {
				t.Errorf("released: %v", released.Load())
			}
		})
	}
}

func leaseOf(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: servers.LeaderLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(3600))},
	}
}
