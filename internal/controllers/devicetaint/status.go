// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package devicetaint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kindred-project/kindred/internal/controllers/framework/control"
)

// statusInterval is the shortest time between two statuses of a rule whose spec did not change.
const statusInterval = 10 * time.Second

// reporter keeps the status of rules.
type reporter struct {
	control.Env
	gangs   bool
	evicted *evicted
}

// Reconcile writes the condition EvictionInProgress of a rule.
func (r *reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rule := &resourcev1.DeviceTaintRule{}
	if err := r.Client.Get(ctx, req.NamespacedName, rule); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if rule.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	current := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	observed := current != nil && current.ObservedGeneration == rule.Generation
	if observed && rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
		return ctrl.Result{}, nil // upstream does not update it, and its message says so
	}
	if observed {
		if left := current.LastTransitionTime.Add(statusInterval).Sub(r.Clock.Now()); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
	}
	e, err := r.effects(ctx, rule)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := e.condition(rule)
	if observed && current.Status == now.Status && current.Reason == now.Reason && current.Message == now.Message {
		return ctrl.Result{}, nil
	}
	now.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	rule.Status.Conditions = append(slices.DeleteFunc(rule.Status.Conditions, func(c metav1.Condition) bool { return c.Type == now.Type }), now)
	err = r.Client.Status().Update(ctx, rule)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// staleDelay is the delay before a retry with a stale cache. A change of the status alone does not wake the
// controller.
const staleDelay = 100 * time.Millisecond

// effects count what a rule selects, and whom it evicts, or would with the effect NoExecute.
type effects struct {
	published, allocated     int
	pods, namespaces, before int
}

func (r *reporter) effects(ctx context.Context, rule *resourcev1.DeviceTaintRule) (effects, error) {
	e := effects{before: r.evicted.of(rule.UID)}
	known, err := readDevices(ctx, r.Client)
	if err != nil {
		return e, err
	}
	// Only this rule counts, and it counts as if it evicted.
	asked := *rule.DeepCopy()
	asked.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	e.published = known.published(rule)
	known = devices{rules: []resourcev1.DeviceTaintRule{asked}}
	var all resourcev1.ResourceClaimList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return e, err
	}
	namespaces := map[string]bool{}
	for i := range all.Items {
		if n := allocated(rule, &all.Items[i]); n > 0 {
			e.allocated += n
			namespaces[all.Items[i].Namespace] = true
		}
	}
	for namespace := range namespaces {
		var list corev1.PodList
		if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return e, err
		}
		before := e.pods
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.DeletionTimestamp == nil && known.podEviction(pod, claims(ctx, r.Client, namespace), r.gangs) != nil {
				e.pods++
			}
		}
		if e.pods > before {
			e.namespaces++
		}
	}
	return e, nil
}

// condition returns the condition of a rule. The texts are upstream's.
func (e effects) condition(rule *resourcev1.DeviceTaintRule) metav1.Condition {
	c := metav1.Condition{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation,
	}
	var text []string
	switch effect := rule.Spec.Taint.Effect; {
	case effect == resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		text = append(text,
			count(e.published, "published device selected.", "published devices selected."),
			count(e.allocated, "allocated device selected.", "allocated devices selected."),
			count(e.pods, "pod would be evicted in", "pods would be evicted in"),
			count(e.namespaces, "namespace", "different namespaces"),
			"if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.")
	case effect != resourcev1.DeviceTaintEffectNoExecute:
		c.Reason = "OtherEffect"
		text = append(text, "Eviction only happens for the NoExecute effect.")
	case e.pods > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
		text = append(text,
			count(e.pods, "pod needs to be evicted in", "pods need to be evicted in"),
			count(e.namespaces, "namespace.", "different namespaces."))
	case e.before > 0:
		c.Reason = "Completed"
	default:
		c.Reason = "NotStarted"
	}
	if e.before > 0 {
		text = append(text, count(e.before, "pod", "pods"), "evicted since starting the controller.")
	}
	c.Message = strings.Join(text, " ")
	return c
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
