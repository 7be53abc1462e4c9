// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/test/etcd"
)

// TestRecordFills: a record has the versions that were written before a server was killed, and that a watch does not show afterwards. When the store
// has compacted them, it says that it has missed some.
func TestRecordFills(t *testing.T) {
	store := "http://" + etcd.Local(t, t.TempDir()).Address
	s := newSession(t, ownCluster(t, "--no-node", "--etcd-servers", store))
	r := &record{management: &management{session: s}}
	f := &follower{record: r, resource: graph.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"}}
	if err := f.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	began, first := state{f.now.revision, map[types.UID]version{}}, len(r.pending)
	for _, args := range [][]string{
		{"create", "configmap", "a"}, {"create", "configmap", "b"}, {"label", "configmap", "a", "n=1"}, {"label", "configmap", "a", "n=2", "--overwrite"},
		{"delete", "configmap", "b"}, {"label", "configmap", "a", "n=3", "--overwrite"}, {"delete", "configmap", "a"},
	} {
		s.kubectl(args...)
	}
	s.cluster.kill(t)
	s.cluster.again(t)
	s.kubectl("create", "configmap", "c")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go f.run(ctx)
	s.eventually("the record is complete", func() error {
		_, err := f.isCurrent()
		return err
	})
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, v := range r.pending[first:] {
		if v.object.Namespace != s.namespace || len(v.object.Name) > 1 {
			continue
		}
		title := v.object.Name + v.object.Labels["n"]
		if v.gone {
			title += " goes"
		}
		got = append(got, title)
	}
	if diff := cmp.Diff("a, b, a1, a2, b goes, a3, a3 goes, c", strings.Join(got, ", ")); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	missesCompacted(t, store, s, began)
}

// missesCompacted compacts the store, and continues from before that.
func missesCompacted(t *testing.T, store string, s *session, began state) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{store}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answer, err := client.Get(t.Context(), "none")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), answer.Header.Revision); err != nil {
		t.Fatal(err)
	}
	f := &follower{
		record:   &record{management: &management{session: s}},
		resource: graph.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"},
		now:      began,
	}
	if err := f.follow(t.Context()); !errors.Is(err, errMissed) {
		t.Errorf("from a revision that was compacted: %v", err)
	}
}
