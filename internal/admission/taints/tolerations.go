// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package taints

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// TolerationsName is the name of the plugin Tolerations in the API server's
// configuration.
const TolerationsName = "DefaultTolerationSeconds"

// defaultSeconds is long enough for a node to restart, and short enough to
// replace its pods elsewhere in time.
const defaultSeconds = int64(300)

// Tolerations lets each pod stay for defaultSeconds on a node that is not ready
// or unreachable, unless the pod has tolerations of its own for that.
type Tolerations struct{ *admission.Handler }

var _ admission.MutationInterface = &Tolerations{}

// NewTolerations returns the plugin.
func NewTolerations() *Tolerations {
	return &Tolerations{admission.NewHandler(admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface.
func (*Tolerations) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected *v1.Pod but got %T", a.GetObject()))
	}
	own := pod.Spec.Tolerations
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if tolerates(own, taint) {
			continue
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key:               taint,
			Operator:          corev1.TolerationOpExists,
			Effect:            corev1.TaintEffectNoExecute,
			TolerationSeconds: ptr.To(defaultSeconds),
		})
	}
	return nil
}

// tolerates reports whether one of the tolerations covers eviction by the taint.
// An empty key or effect matches all.
func tolerates(tolerations []corev1.Toleration, taint string) bool {
	for _, t := range tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
