// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kindred-project/kindred/internal/deletion"
)

// notebook is a deletion.Records whose writes may fail.
type notebook struct {
	deletion.Records
	mu      sync.Mutex
	failing bool
	records map[string]deletion.Record
	batches int
}

func (n *notebook) AddCollected(_ context.Context, records []deletion.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing {
		return errors.New("no")
	}
	if len(records) > deletion.BatchLimit {
		return errors.New("too many")
	}
	n.batches++
	for _, r := range records {
		n.records[r.Name] = r
	}
	return nil
}

func (n *notebook) size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.records)
}

func (n *notebook) fail(failing bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing = failing
}

func TestCollectedIsRemembered(t *testing.T) {
	a, book := newAPI(configMaps, secrets), &notebook{records: map[string]deletion.Record{}}
	owner := a.create(configMaps, "default", "owner")
	const many = 2*deletion.BatchLimit + 7
	versions := map[string]string{}
	for i := range many {
		dependent := a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
		versions[dependent.Name] = dependent.ResourceVersion
	}
	before := time.Now()
	start(t, a, func(o *Options) { o.Records = book })
	remove(t, a, owner, metav1.DeletePropagationBackground)
	eventually(t, "all recorded", func() bool { return book.size() == many })
	for name, r := range book.records {
		if r.Name != name || r.Namespace != "default" || r.Resource.Resource != "secrets" || r.ResourceVersion != versions[name] || r.Policy != metav1.DeletePropagationBackground ||
			r.By.User != "system:serviceaccount:kube-system:generic-garbage-collector" || len(r.Owners) != 1 || r.Owners[0].UID != owner.UID || r.Time.Time.Before(before) {
			t.Fatalf("%s: %+v", name, r)
		}
	}
	if _, recorded := book.records["owner"]; recorded {
		t.Error("an object that another client deleted is recorded as collected")
	}
	if book.batches > 20 {
		t.Errorf("%d batches for %d objects", book.batches, many)
	}
}

// TestRecordsAreNotLost: records that could not be written are retried, and the remaining ones are
// written when the collector stops.
func TestRecordsAreNotLost(t *testing.T) {
	a, book := newAPI(configMaps, secrets), &notebook{records: map[string]deletion.Record{}, failing: true}
	owner := a.create(configMaps, "default", "owner")
	for i := range 10 {
		a.create(secrets, "default", fmt.Sprint("dependent-", i), ownedBy(owner))
	}
	_, stop := start(t, a, func(o *Options) { o.Records = book })
	remove(t, a, owner, metav1.DeletePropagationBackground)
	eventually(t, "all deleted", func() bool { return a.count(secrets) == 0 })
	time.Sleep(rememberEvery + 100*time.Millisecond)
	book.fail(false)
	stop()
	if n := book.size(); n != 10 {
		t.Errorf("%d of 10 are recorded", n)
	}
}
