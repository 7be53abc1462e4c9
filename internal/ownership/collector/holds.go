// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kindred-project/kindred/internal/ownership/graph"
	"github.com/kindred-project/kindred/internal/ownership/undelete"
)

// ReasonHold is the reason of the event about an object on hold.
const ReasonHold = "OwnershipHold"

const (
	// holdPeriod is the period of checks for objects on hold. An undeletion that is not interrupted
	// releases its objects sooner, so that there are no events about them.
	holdPeriod = 30 * time.Second
	// holdEvents is the maximum number of events in a period.
	holdEvents = 100
)

// holds has the UIDs of the objects on hold, and whether an event about each was recorded.
type holds map[types.UID]bool

// reportHoldsPeriodically records one event about each object that stays on hold.
func (c *Collector) reportHoldsPeriodically(ctx context.Context) {
	ticker := c.Clock.NewTicker(holdPeriod)
	defer ticker.Stop()
	for known := (holds{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			known = c.reportHolds(ctx, known)
		}
	}
}

// reportHolds records an event about each object that is on hold for at least a period, and returns
// the objects that are on hold now.
func (c *Collector) reportHolds(ctx context.Context, known holds) holds {
	var held []graph.Object
	c.View(func(g *graph.Graph) { held = g.Held() })
	now, sent := holds{}, 0
	for _, o := range held {
		reported, was := known[o.UID]
		if o.Deleting {
			continue
		}
		if was && !reported && sent < holdEvents {
			reported = c.reportHold(ctx, o)
			sent++
		}
		now[o.UID] = reported
	}
	return now
}

// reportHold records the event about an object on hold. It reports whether no further attempt is
// needed.
func (c *Collector) reportHold(ctx context.Context, o graph.Object) bool {
	object, err := c.Metadata.Resource(o.GroupVersionResource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && object.UID != o.UID {
		return true
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No event about a hold yet", "resource", o.GroupVersionResource, "object", klog.KRef(o.Namespace, o.Name), "err", err)
		return false
	}
	hold := undelete.HoldOf(object, schema.GroupKind{Group: o.Group, Kind: o.Kind})
	if hold == nil {
		return true
	}
	severity := corev1.EventTypeNormal
	if hold.Undeletion != "" {
		severity = corev1.EventTypeWarning
	}
	c.Events.Event(&corev1.ObjectReference{
		APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}, severity, ReasonHold, "on hold: "+hold.Message+"; "+hold.Remedy)
	return true
}
