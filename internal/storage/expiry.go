// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// expiring is etcd as the API knows it: a revision can be read for as long as the pages of a
// list may be asked for, though History still has it. Clients rely on the end as well: who
// pages through a list too slowly is told so, and given a token to go on with
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks).
type expiring struct {
	kubernetes.Interface
	compactor *compactor
}

func (e expiring) Get(ctx context.Context, key string, options kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	if e.expired(options.Revision) {
		return kubernetes.GetResponse{}, rpctypes.ErrCompacted
	}
	return e.Interface.Get(ctx, key, options)
}

func (e expiring) List(ctx context.Context, prefix string, options kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	if e.expired(options.Revision) {
		return kubernetes.ListResponse{}, rpctypes.ErrCompacted
	}
	return e.Interface.List(ctx, prefix, options)
}

// expired tells of a revision; 0 stands for the latest.
func (e expiring) expired(revision int64) bool {
	return revision > 0 && revision < e.compactor.CompactRevision()
}
