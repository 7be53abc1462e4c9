// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestBackup: a cluster whose store is lost is as it was at the time of its backup, with its keys, and goes on; also in another
// directory. A client that has seen later states lists again. What is not a backup, or would overwrite a store, is refused.
func TestBackup(t *testing.T) {
	c := ownCluster(t, "--no-node", "--simulated-nodes", "1")
	s := newSession(t, c)
	s.kubectl("create", "configmap", "before")
	s.deploys("web", 2)
	file := filepath.Join(t.TempDir(), "cluster.backup")
	s.backUp(file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", info, err)
	}
	s.kubectl("create", "configmap", "after")
	s.kubectl("delete", "configmap", "before")
	seen := s.jsonpath("{.metadata.resourceVersion}", "configmap", "after")

	if r := c.run("restore", file); r.code == 0 || !strings.Contains(r.err, "in use") {
		t.Errorf("restore while it runs: %d, %q", r.code, r.err)
	}
	c.terminate(t)
	if r := c.run("restore", file); r.code == 0 || !strings.Contains(r.err, "there is a store in") {
		t.Errorf("restore over a store: %d, %q", r.code, r.err)
	}
	if r := c.run("backup", file); r.code == 0 {
		t.Errorf("backup of a cluster that does not run: %q", r.out)
	}
	if err := os.Rename(filepath.Join(c.dir, "etcd"), filepath.Join(c.dir, "etcd-lost")); err != nil {
		t.Fatal(err)
	}
	c.refusesBackups(t, file)
	if r := c.run("restore", file); r.code != 0 || !strings.Contains(r.out, "kindred up") {
		t.Fatalf("restore: %d, %q, %s", r.code, r.out, r.err)
	}
	c.again(t)
	s.kubectl("get", "configmap", "before")
	s.refused([]string{"not found"}, "get", "configmap", "after")
	s.scales("web", 3)
	s.isOutOfDate(seen)

	other := &cluster{dir: filepath.Join(t.TempDir(), "data"), home: c.home}
	c.terminate(t)
	if r := other.run("restore", file); r.code != 0 {
		t.Fatalf("restore elsewhere: %s", r.err)
	}
	t.Cleanup(func() { _ = other.remove() })
	other.mustStart(t, "--no-node", "--simulated-nodes", "1")
	inNamespace(t, other, s.namespace).kubectl("get", "configmap", "before")
	mine, err := os.ReadFile(filepath.Join(c.dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if its, err := os.ReadFile(filepath.Join(other.dir, "pki", "ca.crt")); err != nil || !bytes.Equal(mine, its) {
		t.Errorf("the restored cluster has another authority: %v", err)
	}
	if err := other.signal(os.Interrupt); err != nil {
		t.Error(err)
	}
}

func (s *session) backUp(file string) {
	s.Helper()
	if r := s.cluster.run("backup", file); r.code != 0 || !strings.Contains(r.out, "administrator") {
		s.Fatalf("backup: %d, %q, %s", r.code, r.out, r.err)
	}
}

// refusesBackups: damaged backups and those of other clusters are refused, and nothing is left of them.
func (c *cluster) refusesBackups(t *testing.T, file string) {
	t.Helper()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, whole[:len(whole)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	other := ownCluster(t, "--no-node")
	if r := other.run("backup", foreign); r.code != 0 {
		t.Fatal(r.err)
	}
	for file, want := range map[string]string{damaged: "damaged", foreign: "of another cluster", binary: "not a backup"} {
		if r := c.run("restore", file); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("restore %s: %d, %q; want %q", file, r.code, r.err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "etcd")); err == nil {
		t.Error("a refused restore has left a store")
	}
}

// isOutOfDate: a watch from a state after the backup ends, so that clients list again.
func (s *session) isOutOfDate(resourceVersion string) {
	s.Helper()
	w, err := s.cluster.client(s.T).CoreV1().ConfigMaps(s.namespace).Watch(s.Context(), metav1.ListOptions{ResourceVersion: resourceVersion})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if err != nil {
		s.Fatal(err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) && !apierrors.IsGone(apierrors.FromObject(e.Object)) {
			s.Errorf("a watch from a state after the backup gets %+v", e)
		}
	case <-time.After(20 * time.Second):
		s.Error("a watch from a state after the backup gets nothing")
	}
}
