// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

const (
	// discoveryTTL limits the use of a cached discovery: aggregated APIs change without
	// a change of CRDs.
	discoveryTTL = 10 * time.Second
	// discoveryLag is the time that the discovery document may lag behind a change of CRDs.
	// A discovery within that time is not cached.
	discoveryLag = 5 * time.Second
)

// resource is a namespaced resource whose objects can be deleted.
type resource struct {
	gvr        schema.GroupVersionResource
	kind       string
	list       bool // objects can be listed
	collection bool // the resource supports deletecollection
}

func (r resource) isPods() bool { return r.gvr.Group == "" && r.gvr.Resource == "pods" }

func (r resource) gvk() schema.GroupVersionKind { return r.gvr.GroupVersion().WithKind(r.kind) }

// catalog caches the deletable namespaced resources of the API.
type catalog struct {
	discover func() ([]*metav1.APIResourceList, error)
	clock    clock.PassiveClock

	mu      sync.Mutex
	known   []resource
	since   time.Time
	changed time.Time // the last change of CRDs
}

// invalidate drops the cache after a change of a CRD.
func (c *catalog) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.changed = nil, c.clock.Now()
}

// resources returns the cached or discovered resources. With an error it returns those that could
// be discovered: a broken aggregated API must not block the deletion of other objects.
func (c *catalog) resources() (found []resource, discoverErr, parseErr error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.known != nil && now.Sub(c.since) < discoveryTTL {
		return c.known, nil, nil
	}
	lists, discoverErr := c.discover()
	found, parseErr = deletable(lists)
	c.known = nil
	if discoverErr == nil && parseErr == nil && (c.changed.IsZero() || now.Sub(c.changed) > discoveryLag) {
		c.known, c.since = found, now
	}
	return found, discoverErr, parseErr
}

func deletable(lists []*metav1.APIResourceList) (found []resource, err error) {
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			err = fmt.Errorf("unable to parse GroupVersion %q: %w", list.GroupVersion, parseErr)
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			found = append(found, resource{
				gvr:        gv.WithResource(r.Name),
				kind:       r.Kind,
				list:       slices.Contains(r.Verbs, "list"),
				collection: slices.Contains(r.Verbs, "deletecollection"),
			})
		}
	}
	return found, err
}
