// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kindred-project/kindred/internal/servers"
)

// lock is the Lease of the leader. It is released by its holder only. An elector that gives up reads the Lease before it
// releases it, and takes itself for the holder still: a server that was stopped for longer than its lease and goes on would take
// the lease from the server that leads now. An elector uses its lock in one goroutine at a time.
type lock struct {
	resourcelock.Interface
	// holder is the holder that the last Get returned.
	holder string
}

func newLock(client kubernetes.Interface, name string) *lock {
	return &lock{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: servers.LeaderLease},
		Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}}
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Update implements resourcelock.Interface. A record without a holder releases the lease.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.holder != l.Identity() {
		return fmt.Errorf("%q holds the lease now", l.holder)
	}
	return l.Interface.Update(ctx, record)
}
