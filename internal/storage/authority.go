// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// authorityKey has the hash of the authority of the cluster whose store this is.
const authorityKey = ownPrefix + "authority"

// Claim returns an error if the store belongs to a cluster with another authority: its tokens and certificates would be valid on some
// of the servers and not on others. The first server decides which one it is.
func (b *Backend) Claim(ctx context.Context, authority string) error {
	answer, err := b.client.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(authorityKey), "=", 0)).
		Then(clientv3.OpPut(authorityKey, authority)).
		Else(clientv3.OpGet(authorityKey)).Commit()
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	if answer.Succeeded {
		return nil
	}
	if found := firstKey(answer.Responses); found != nil && string(found.Value) != authority {
		return fmt.Errorf("the store belongs to a cluster with the authority %s, and the one here is %s: \"kindred token create --server\" on a server of that cluster prints how to join it", found.Value, authority)
	}
	return nil
}
