// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/deletion"
	"github.com/kindred-project/kindred/internal/ownership/graph"
)

const (
	// rememberEvery is the period in which records are written. A crash loses the records of
	// one period.
	rememberEvery = time.Second
	// rememberLimit is the maximum number of records that wait for the store.
	rememberLimit = 100 * deletion.BatchLimit
	// rememberLast is the timeout for the last records at shutdown.
	rememberLast = 500 * time.Millisecond
)

var self = deletion.Caller{User: serviceaccount.MakeUsername(metav1.NamespaceSystem, Name)}

// journal holds the records that are not written yet. Records are written in batches, because one
// write for each would cost as much as the deletion itself.
type journal struct {
	mu      sync.Mutex
	records []deletion.Record
	full    chan struct{}
}

// remember adds a record if an action deleted an object.
func (c *Collector) remember(a graph.Action, o graph.Outcome) {
	if c.Records == nil || a.Verb != graph.Delete || o.Result != graph.Applied {
		return
	}
	record := deletion.Record{
		Resource: a.Resource.GroupResource(), Namespace: a.Namespace, Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion,
		Time: metav1.NewMicroTime(c.Clock.Now()), By: self, Policy: a.Policy, Owners: a.Because, InOtherNamespace: a.InOtherNamespace,
	}
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	if len(c.journal.records) == rememberLimit {
		return
	}
	c.journal.records = append(c.journal.records, record)
	if len(c.journal.records) >= deletion.BatchLimit {
		select {
		case c.journal.full <- struct{}{}:
		default:
		}
	}
}

// keepRecords writes records every second, or when a batch is full.
func (c *Collector) keepRecords(ctx context.Context) {
	ticker := c.Clock.NewTicker(rememberEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.journal.full:
		case <-ticker.C():
		}
		c.record(ctx)
	}
}

// record writes the waiting records. It keeps those that it fails to write for the next call.
func (c *Collector) record(ctx context.Context) {
	c.journal.mu.Lock()
	records := c.journal.records
	c.journal.records = nil
	c.journal.mu.Unlock()
	for batch := range slices.Chunk(records, deletion.BatchLimit) {
		if err := c.Records.AddCollected(ctx, batch); err != nil {
			klog.FromContext(ctx).V(2).Info("Deletions are not recorded yet", "err", err)
			c.journal.mu.Lock()
			c.journal.records = append(c.journal.records, batch...)
			c.journal.mu.Unlock()
		}
	}
}

// recordLast writes the last records when all workers have stopped.
func (c *Collector) recordLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberLast)
	defer cancel()
	c.record(ctx)
}
