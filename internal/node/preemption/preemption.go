// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package preemption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/kindred-project/kindred/internal/node/admission"
	"github.com/kindred-project/kindred/internal/node/eviction"
	"github.com/kindred-project/kindred/internal/node/pod"
)

// What a preempted pod's status and events say.
const (
	Reason           = "Preempting"
	Message          = "Preempted in order to admit critical pod"
	ConditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Victims returns the pods to evict so that a critical pod, for which the node is short of these resources, fits; or why it is
// refused, if the pods that it may preempt do not hold enough.
func Victims(preemptor *v1.Pod, pods []*v1.Pod, short []admission.Shortfall) ([]*v1.Pod, *pod.Refusal) {
	classes := map[v1.PodQOSClass][]candidate{}
	for _, p := range pods {
		if preemptable(preemptor, p) {
			class := qos.GetPodQOS(p)
			classes[class] = append(classes[class], candidate{p, admission.ShareOf(p)})
		}
	}
	bestEffort, burstable, guaranteed := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable], classes[v1.PodQOSGuaranteed]
	if missing := rest(short, bestEffort, burstable, guaranteed); len(missing) > 0 {
		return nil, notEnough(missing)
	}
	// Of each class, only those are victims that are needed although all pods of the classes below go.
	guaranteed = fewest(guaranteed, rest(short, bestEffort, burstable))
	burstable = fewest(burstable, rest(short, bestEffort, guaranteed))
	bestEffort = fewest(bestEffort, rest(short, burstable, guaranteed))
	var victims []*v1.Pod
	for _, c := range slices.Concat(bestEffort, burstable, guaranteed) {
		victims = append(victims, c.pod)
	}
	return victims, nil
}

// notEnough returns the refusal of a critical pod that cannot preempt enough.
func notEnough(missing []admission.Shortfall) *pod.Refusal {
	var list strings.Builder
	for _, s := range missing {
		fmt.Fprintf(&list, "(res: %v, q: %d), ", s.Name, s.Amount)
	}
	return &pod.Refusal{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf(
		"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: "+
			"no set of running pods found to reclaim resources: [%s]", list.String())}
}

// preemptable reports whether one pod may preempt another: a critical pod one that is not, and otherwise the pod of the
// higher priority. A static pod that did not pass through the API may have no priority.
func preemptable(preemptor, p *v1.Pod) bool {
	if eviction.IsCritical(preemptor) && !eviction.IsCritical(p) {
		return true
	}
	return preemptor.Spec.Priority != nil && p.Spec.Priority != nil && *preemptor.Spec.Priority > *p.Spec.Priority
}

type candidate struct {
	pod   *v1.Pod
	share admission.Share
}

// rest returns what is still short once these candidates are gone.
func rest(short []admission.Shortfall, gone ...[]candidate) []admission.Shortfall {
	var left []admission.Shortfall
	for _, s := range short {
		for _, c := range slices.Concat(gone...) {
			s.Amount -= c.share.Amount(s.Name)
		}
		if s.Amount > 0 {
			left = append(left, s)
		}
	}
	return left
}

// fewest returns candidates that make up for what is short, which all of them together do. It takes the nearest to what is
// still short, one after another: this takes the fewest if only one resource is short, and few if several are.
func fewest(candidates []candidate, short []admission.Shortfall) []candidate {
	left := slices.Clone(candidates)
	var chosen []candidate
	for len(short) > 0 && len(left) > 0 {
		nearest := slices.MinFunc(left, func(a, b candidate) int {
			return cmp.Or(
				cmp.Compare(a.distance(short), b.distance(short)),
				cmp.Compare(a.share.Amount(v1.ResourceMemory), b.share.Amount(v1.ResourceMemory)),
				cmp.Compare(a.share.Amount(v1.ResourceCPU), b.share.Amount(v1.ResourceCPU)),
				cmp.Compare(a.pod.UID, b.pod.UID),
			)
		})
		chosen = append(chosen, nearest)
		short = rest(short, []candidate{nearest})
		left = slices.DeleteFunc(left, func(c candidate) bool { return c.pod == nearest.pod })
	}
	return chosen
}

// distance returns how far the candidate is from making up for what is short. All resources weigh the same.
func (c candidate) distance(short []admission.Shortfall) float64 {
	var sum float64
	for _, s := range short {
		if missing := float64(s.Amount - c.share.Amount(s.Name)); missing > 0 {
			part := missing / float64(s.Amount)
			sum += part * part
		}
	}
	return sum
}
