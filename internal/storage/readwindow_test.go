// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestReadWindow: after five minutes the API can no longer read a revision that History retains.
func TestReadWindow(t *testing.T) {
	client, c := quietStore(t), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var small int64
	k := keeper(t, client, c, Retention{Age: time.Hour, Size: 100}, &small)
	api := readWindow{&kubernetes.Client{Client: client}, k}
	rounds(t, c, 1, k)
	old := write(t, client, "/registry/a", "1")
	write(t, client, "/registry/a", "2")
	get := func(revision int64) error {
		_, err := api.Get(t.Context(), "/registry/a", kubernetes.GetOptions{Revision: revision})
		return err
	}
	list := func(revision int64) error {
		_, err := api.List(t.Context(), "/registry/", kubernetes.ListOptions{Revision: revision})
		return err
	}
	for what, read := range map[string]func(int64) error{"get": get, "list": list} {
		if err := read(old); err != nil {
			t.Errorf("%s at once: %v", what, err)
		}
	}
	rounds(t, c, 7, k)
	for what, read := range map[string]func(int64) error{"get": get, "list": list} {
		if err := read(old); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("%s after seven minutes: %v", what, err)
		}
		if err := read(0); err != nil {
			t.Errorf("%s of the latest revision: %v", what, err)
		}
	}
	if !readable(t, client, old) {
		t.Error("the revision is compacted")
	}
}
