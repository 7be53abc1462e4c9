// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
)

// scaled is the target of an autoscaler.
type scaled struct {
	resource schema.GroupResource
	scale    *autoscalingv1.Scale
}

// run evaluates the autoscaler, scales its target, and writes its status.
func (p *pass) run(ctx context.Context) error {
	if err := p.find(ctx); err != nil {
		message := errors.Unwrap(err).Error()
		p.warn("FailedGetScale", message)
		p.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+message)
		return errors.Join(err, p.write(ctx))
	}
	p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	now := p.clock.Now()
	if len(p.autoscaler.memory.recommendations) == 0 && !p.autoscaler.seen {
		p.autoscaler.memory.recommendations = []moment{{now, p.current}}
	}
	p.autoscaler.seen = true
	d, failure := p.decide(ctx)
	if d.stop {
		p.report(p.hpa.Status.DesiredReplicas, d.metrics, false)
		writeErr := p.write(ctx)
		p.warn("FailedComputeMetricsReplicas", failure.Error())
		return errors.Join(fmt.Errorf("failed to compute desired number of replicas based on listed metrics for %s: %w", p.reference(), failure), writeErr)
	}
	if d.replicas == p.current || !d.scale {
		p.report(p.current, d.metrics, false)
		return errors.Join(failure, p.write(ctx))
	}
	if err := p.scaleTo(ctx, d.replicas); err != nil {
		p.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", d.replicas, d.reason, err))
		p.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		p.report(p.hpa.Status.DesiredReplicas, d.metrics, false)
		return errors.Join(fmt.Errorf("failed to rescale %s: %w", p.reference(), err), p.write(ctx))
	}
	p.rescaled(d)
	return errors.Join(failure, p.write(ctx))
}

// find reads the target's scale.
func (p *pass) find(ctx context.Context) error {
	ref := p.hpa.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return fmt.Errorf("invalid API version in scale target reference: %w", err)
	}
	// The version of the reference does not matter: any served one has the scale.
	mappings, err := p.mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return fmt.Errorf("unable to determine resource for scale target reference: %w", err)
	}
	first := errors.New("unrecognized resource")
	for i, mapping := range mappings {
		resource := mapping.Resource.GroupResource()
		found, err := p.scales.Scales(p.hpa.Namespace).Get(ctx, resource, ref.Name, metav1.GetOptions{})
		if err == nil {
			p.target, p.current, p.bounds = scaled{resource, found}, found.Spec.Replicas, boundsOf(&p.hpa.Spec)
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return fmt.Errorf("failed to query scale subresource for %s: %w", p.reference(), first)
}

// decision is the result of a pass.
type decision struct {
	replicas int32
	// reason is why the replicas change.
	reason  string
	metrics []autoscalingv2.MetricStatus
	// scale is false if autoscaling is disabled, stop is true if no decision was possible.
	scale, stop bool
}

// decide returns how many replicas the target should have. It may return an error along with a decision,
// if some of the metrics failed.
func (p *pass) decide(ctx context.Context) (decision, error) {
	fromZero := p.current == 0 && p.wasScaledToZero()
	switch {
	case p.current == 0 && !(fromZero && (p.bounds.min != 0 || hasSharedMetric(p.hpa))):
		p.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		return decision{}, nil
	case p.current > p.bounds.max:
		return decision{replicas: p.bounds.max, reason: "Current number of replicas above Spec.MaxReplicas", scale: true}, nil
	case p.current != 0 && p.current < p.bounds.min:
		return decision{replicas: p.bounds.min, reason: belowMin, scale: true}, nil
	}
	best, statuses, err := p.recommend(ctx, p.target.scale)
	if best.replicas == -1 {
		return decision{metrics: statuses, stop: true}, err
	}
	d := decision{metrics: statuses, scale: true, reason: reasonFor(best, p.current)}
	l := p.autoscaler.memory.limit(p.bounds, p.current, best.replicas, p.clock.Now())
	p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, l.able.reason, l.able.message)
	hit := corev1.ConditionFalse
	if l.hit {
		hit = corev1.ConditionTrue
	}
	p.set(autoscalingv2.ScalingLimited, hit, l.limit.reason, l.limit.message)
	if d.replicas = l.replicas; fromZero && d.replicas < p.bounds.min {
		d.replicas = p.bounds.min
		if d.reason == "" {
			d.reason = belowMin
		}
	}
	return d, err
}

const belowMin = "Current number of replicas below Spec.MinReplicas"

func reasonFor(best proposal, current int32) string {
	switch {
	case best.replicas > current:
		return best.metric + " above target"
	case best.replicas < current:
		return "All metrics below target"
	}
	return ""
}

// hasSharedMetric reports whether a metric exists without pods. Only such a metric can end a time
// without replicas (KEP-2021).
func hasSharedMetric(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// wasScaledToZero reports whether the autoscaler removed the last replica, and not a user, who thereby
// disables autoscaling.
func (p *pass) wasScaledToZero() bool {
	return slices.ContainsFunc(p.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
}

// scaleTo writes the scale. If another client changed it, the change is made on top.
func (p *pass) scaleTo(ctx context.Context, replicas int32) error {
	scales := p.scales.Scales(p.hpa.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p.target.scale.Spec.Replicas = replicas
		_, err := scales.Update(ctx, p.target.resource, p.target.scale, metav1.UpdateOptions{})
		if err == nil {
			return nil
		}
		if latest, getErr := scales.Get(ctx, p.target.resource, p.hpa.Spec.ScaleTargetRef.Name, metav1.GetOptions{}); getErr == nil {
			p.target.scale = latest
		}
		return err
	})
}

// rescaled records a change of the target.
func (p *pass) rescaled(d decision) {
	p.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", d.replicas))
	p.events.Eventf(p.hpa, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", d.replicas, d.reason)
	p.autoscaler.memory.changed(p.bounds, p.current, d.replicas, p.clock.Now())
	if p.current > 0 && d.replicas == 0 && p.bounds.min == 0 && hasSharedMetric(p.hpa) {
		p.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		p.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
	p.report(d.replicas, d.metrics, true)
}

// report sets the numbers of the status.
func (p *pass) report(desired int32, metrics []autoscalingv2.MetricStatus, rescaled bool) {
	status := &p.hpa.Status
	status.ObservedGeneration = new(p.hpa.Generation)
	status.CurrentReplicas, status.DesiredReplicas, status.CurrentMetrics = p.current, desired, metrics
	if rescaled {
		status.LastScaleTime = new(metav1.NewTime(p.clock.Now()))
	}
}

// set sets a condition.
func (p *pass) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	conditions := p.hpa.Status.Conditions
	i := slices.IndexFunc(conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		i, conditions = len(conditions), append(conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
		p.hpa.Status.Conditions = conditions
	}
	c := &conditions[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(p.clock.Now())
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

func (p *pass) warn(reason, message string) {
	p.events.Event(p.hpa, corev1.EventTypeWarning, reason, message)
}

// reference names the target in errors.
func (p *pass) reference() string {
	return fmt.Sprintf("%s/%s/%s", p.hpa.Spec.ScaleTargetRef.Kind, p.hpa.Namespace, p.hpa.Spec.ScaleTargetRef.Name)
}

// write writes the status if it has changed. A conflict means that the pass saw an old state of the
// autoscaler.
func (p *pass) write(ctx context.Context) error {
	if apiequality.Semantic.DeepEqual(p.before, p.hpa.Status) {
		return nil
	}
	err := p.client.Status().Update(ctx, p.hpa)
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case !apierrors.IsConflict(err):
		p.warn("FailedUpdateStatus", err.Error())
	}
	return fmt.Errorf("failed to update status for %s: %w", p.hpa.Name, err)
}
