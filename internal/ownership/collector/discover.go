// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/ownership/graph"
)

// announcers are the resources whose objects announce new resources.
var announcers = map[schema.GroupResource]bool{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:             true,
}

// refreshDelays are the delays before discovery is read again after an announcement, because
// the resource is served, and discovered, only some time later. The first delay batches
// announcements.
var refreshDelays = []time.Duration{
	10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond,
}

// refreshSoon triggers discovery now and after each of refreshDelays.
func (c *Collector) refreshSoon() {
	select {
	case c.refresh <- struct{}{}:
	default:
	}
}

// keepDiscovering starts and stops monitors according to discovery until ctx ends.
func (c *Collector) keepDiscovering(ctx context.Context) {
	c.discover(ctx)
	if err := c.Served(ctx); err != nil {
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Cannot tell whether all resources are served")
	}
	discovered := false
	for attempt := 0; ; {
		if c.discover(ctx) && !discovered {
			discovered = true
			c.update((*graph.Graph).Discovered)
		}
		delay := c.RefreshPeriod
		if attempt < len(refreshDelays) {
			delay = min(delay, refreshDelays[attempt])
		}
		// Do not cut the first delay short: it batches announcements.
		refresh := c.refresh
		if attempt == 0 {
			refresh = nil
		}
		timer := c.Clock.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-refresh:
			attempt = 0
		case <-timer.C():
			attempt++
		}
		timer.Stop()
	}
}

// discover reads discovery and starts and stops monitors accordingly. It reports whether discovery
// could be read.
func (c *Collector) discover(ctx context.Context) bool {
	groups, lists, err := discovery.ToServerResourcesInterfaceWithContext(c.Discovery).ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if len(lists) == 0 || err != nil && !partial {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Cannot read discovery, will try again", "err", err)
		}
		return false
	}
	served := resourcesOf(groups, lists)
	for gr, r := range served {
		r.Watched = r.Watched && !c.ignored[gr]
		served[gr] = r
	}
	for gr, m := range c.monitors {
		if _, ok := served[gr]; ok {
			continue
		}
		if _, unknown := failed[m.resource.GroupVersion()]; unknown {
			continue // Its API server does not respond, so it may still be served.
		}
		m.stop()
		delete(c.monitors, gr)
		c.update(func(g *graph.Graph) { g.Unserve(gr) })
	}
	var changed []graph.Resource
	for gr, r := range served {
		m, ok := c.monitors[gr]
		if ok && m.resource == r {
			continue
		}
		if ok {
			m.stop()
		}
		changed = append(changed, r)
	}
	// Serve all resources together, before the first is listed. Otherwise the graph could be
	// complete without some of them, and release an owner whose dependents are not listed yet.
	c.update(func(g *graph.Graph) {
		for _, r := range changed {
			g.Serve(r)
		}
	})
	for _, r := range changed {
		c.monitors[r.GroupResource()] = c.monitor(ctx, r)
	}
	return true
}

// resourcesOf returns the served resources, each in its group's preferred version
// if it is served there.
func resourcesOf(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) map[schema.GroupResource]graph.Resource {
	preferred := sets.New[string]()
	for _, group := range groups {
		preferred.Insert(group.PreferredVersion.GroupVersion)
	}
	served := map[schema.GroupResource]graph.Resource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := resourceOf(gv, &list.APIResources[i])
			if strings.Contains(r.Resource, "/") || !r.Watched && !slices.Contains(list.APIResources[i].Verbs, "get") {
				continue // a subresource, or one whose objects cannot be looked at
			}
			if gk := (schema.GroupKind{Group: r.Group, Kind: r.Kind}); graph.Current(gk) != gk {
				continue // the objects of another resource
			}
			former, ok := served[r.GroupResource()]
			if !ok || r.Watched && !former.Watched || r.Watched == former.Watched && preferred.Has(list.GroupVersion) {
				served[r.GroupResource()] = r
			}
		}
	}
	return served
}

func resourceOf(gv schema.GroupVersion, r *metav1.APIResource) graph.Resource {
	if r.Group != "" {
		gv.Group = r.Group
	}
	if r.Version != "" {
		gv.Version = r.Version
	}
	return graph.Resource{
		GroupVersionResource: gv.WithResource(r.Name),
		Kind:                 r.Kind,
		Namespaced:           r.Namespaced,
		Watched: slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") &&
			slices.Contains(r.Verbs, "delete"),
	}
}
