// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/control"
	"github.com/kindred-project/kindred/internal/controllers/framework/pods"
)

const (
	// Name is the controller's identity, and the source of its events.
	Name = "horizontal-pod-autoscaler"

	// workers limits the autoscalers that are evaluated at a time.
	workers = 5
	// interval is the time between two passes of an autoscaler.
	interval = 15 * time.Second
	// stale is the pause after a status was written from an old state of the autoscaler.
	stale = time.Second
)

// Resource is what the controller watches. Its API group can be disabled.
var Resource = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")

// Add registers the controller. A new or changed autoscaler is evaluated at once, and each one
// periodically: metrics cannot be watched.
func Add(env control.Env) error {
	source, err := newAPIs(env)
	if err != nil {
		return err
	}
	scales, err := scale.NewForConfig(env.Config, env.Manager.GetRESTMapper(), dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(env.Discovery))
	if err != nil {
		return err
	}
	r := newReconciler(env, source, scales, env.Manager.GetRESTMapper())
	return ctrl.NewControllerManagedBy(env.Manager).
		Named(Name).
		WithOptions(env.Options(workers)).
		For(&autoscalingv2.HorizontalPodAutoscaler{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

type reconciler struct {
	client client.Client
	events record.EventRecorder
	clock  clock.PassiveClock
	source source
	scales scale.ScalesGetter
	mapper meta.RESTMapper
	known  known
}

func newReconciler(env control.Env, source source, scales scale.ScalesGetter, mapper meta.RESTMapper) *reconciler {
	return &reconciler{client: env.Client, events: env.Events, clock: env.Clock, source: source, scales: scales, mapper: mapper}
}

// Reconcile evaluates one autoscaler. A failed pass is not repeated before the next one is due, because
// its metrics would be the same.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := r.client.Get(ctx, req.NamespacedName, hpa); err != nil {
		if apierrors.IsNotFound(err) {
			r.known.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if ownership.IsHeld(hpa) {
		return ctrl.Result{RequeueAfter: interval}, nil
	}
	p := &pass{reconciler: r, hpa: hpa.DeepCopy(), before: hpa.Status, autoscaler: r.known.get(req.NamespacedName, hpa.UID)}
	err := p.run(ctx)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: stale}, nil
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot autoscale, will retry", "horizontalpodautoscaler", req.NamespacedName, "err", err)
	}
	return ctrl.Result{RequeueAfter: interval}, nil
}

// pass is one evaluation of one autoscaler. It changes the status of hpa, and writes it at the end.
type pass struct {
	*reconciler
	hpa        *autoscalingv2.HorizontalPodAutoscaler
	before     autoscalingv2.HorizontalPodAutoscalerStatus
	autoscaler *autoscaler

	target  scaled
	current int32
	bounds  bounds
}

// recommend evaluates all metrics and returns the largest number of replicas that one asks for. With an
// error, replicas is -1 if the metrics that work do not suffice to decide.
func (p *pass) recommend(ctx context.Context, of *autoscalingv1.Scale) (best proposal, statuses []autoscalingv2.MetricStatus, err error) {
	none := proposal{replicas: -1}
	selector, err := p.selector(of.Status.Selector)
	if err != nil {
		return none, nil, err
	}
	all, err := pods.List(ctx, p.client, client.InNamespace(p.hpa.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return none, nil, err
	}
	if others := p.known.overlaps(client.ObjectKeyFromObject(p.hpa), selector, all); others != "" {
		message := fmt.Sprintf("pods by selector %v are controlled by more than one HPA (e.g. %v)", of.Status.Selector, others)
		p.warn("AmbiguousSelector", message)
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", message)
		return none, nil, errors.New(message)
	}
	s := subject{
		source: p.source, namespace: p.hpa.Namespace, spec: of.Spec.Replicas, status: of.Status.Replicas,
		selector: selector, pods: all, tolerances: p.bounds.tolerances(), now: p.clock.Now(),
	}
	return p.largest(ctx, s)
}

// largest returns the largest proposal. If a metric fails, replicas are not removed.
func (p *pass) largest(ctx context.Context, s subject) (best proposal, statuses []autoscalingv2.MetricStatus, err error) {
	specs := p.hpa.Spec.Metrics
	statuses = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i, spec := range specs {
		proposed, failure, metricErr := s.evaluate(ctx, spec)
		if failure != nil {
			p.warn(failure.reason, failure.err.Error())
			if failed++; first == nil {
				first, err = failure, metricErr
			}
			continue
		}
		statuses[i] = proposed.status
		if best.replicas == 0 || proposed.replicas > best.replicas {
			best = proposed
		}
	}
	if first != nil {
		err = fmt.Errorf("invalid metrics (%v invalid out of %v), first error is: %w", failed, len(specs), err)
	}
	if failed >= len(specs) || failed > 0 && best.replicas < s.spec {
		if first != nil {
			p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason, "the HPA was unable to compute the replica count: "+first.err.Error())
		}
		return proposal{replicas: -1}, statuses, err
	}
	p.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+best.metric)
	return best, statuses, err
}

// selector returns the selector of the target's pods.
func (p *pass) selector(text string) (labels.Selector, error) {
	if text == "" {
		const message = "selector is required"
		p.warn("SelectorRequired", message)
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector")
		return nil, errors.New(message)
	}
	selector, err := labels.Parse(text)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		p.warn("InvalidSelector", message)
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", message)
		return nil, errors.New(message)
	}
	return selector, nil
}
