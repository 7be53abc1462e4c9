// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kindred-project/kindred/internal/node/runtime"
)

// The annotations of upstream's network plugins that limit what a pod receives and sends, in bits per second.
const (
	ingressBandwidth = "kubernetes.io/ingress-bandwidth"
	egressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// The limits of the values are upstream's.
var (
	leastBandwidth = resource.MustParse("1k")
	mostBandwidth  = resource.MustParse("1P")
)

// limitBandwidth applies the pod's annotations to its sandbox. A pod that cannot be limited runs all the same, with an
// event.
func (w *Worker) limitBandwidth(pod *v1.Pod, sandbox runtime.Sandbox) {
	if w.parts.LimitBandwidth == nil || pod.Spec.HostNetwork {
		return
	}
	ingress, first := bandwidthOf(pod, ingressBandwidth)
	egress, second := bandwidthOf(pod, egressBandwidth)
	err := errors.Join(first, second)
	if err == nil && (ingress > 0 || egress > 0) {
		err = w.parts.LimitBandwidth(sandbox.ID, ingress, egress)
	}
	if err != nil {
		w.event(pod, "", v1.EventTypeWarning, "BandwidthNotLimited", "The pod's bandwidth is not limited: "+err.Error())
	}
}

// bandwidthOf returns the value of an annotation; 0 if the pod does not have it.
func bandwidthOf(pod *v1.Pod, annotation string) (int64, error) {
	text, found := pod.Annotations[annotation]
	if !found {
		return 0, nil
	}
	value, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %q: %w", annotation, text, err)
	}
	if value.Cmp(leastBandwidth) < 0 {
		return 0, fmt.Errorf("annotation %s: resource is unreasonably small (< 1kbit)", annotation)
	}
	if value.Cmp(mostBandwidth) > 0 {
		return 0, fmt.Errorf("annotation %s: resource is unreasonably large (> 1Pbit)", annotation)
	}
	return value.Value(), nil
}
