// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// readWindow refuses reads at old revisions as if they were compacted, although [History] may
// still retain them. Clients rely on this expiry: a list that is paged too slowly fails with
// 410 Gone and a token to continue with
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks).
type readWindow struct {
	kubernetes.Interface
	compactor *compactor
}

func (w readWindow) Get(ctx context.Context, key string, options kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	if w.isExpired(options.Revision) {
		return kubernetes.GetResponse{}, rpctypes.ErrCompacted
	}
	return w.Interface.Get(ctx, key, options)
}

func (w readWindow) List(ctx context.Context, prefix string, options kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	if w.isExpired(options.Revision) {
		return kubernetes.ListResponse{}, rpctypes.ErrCompacted
	}
	return w.Interface.List(ctx, prefix, options)
}

// isExpired reports whether a revision is too old to be read. 0 stands for the latest.
func (w readWindow) isExpired(revision int64) bool {
	return revision > 0 && revision < w.compactor.CompactRevision()
}
