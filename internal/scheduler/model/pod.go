// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
)

// Pod is a pod with what scheduling asks of it worked out. It never changes.
type Pod struct {
	*v1.Pod
	Priority int32
	// Requests is what the pod needs of a node: the greater of what its init
	// containers and its containers need at once, or what the pod as a whole asks
	// for, plus its overhead.
	Requests Resources
	// Weight is Requests for the purpose of comparing nodes: a container which asks
	// for nothing is taken to use a little, so that such pods don't pile up.
	Weight Resources
	// Ports are the ports of the host the pod occupies.
	Ports []Port
	// Owner is the UID of the pod's controller, if it has one.
	Owner types.UID

	Affinity              []Term
	AntiAffinity          []Term
	PreferredAffinity     []WeightedTerm
	PreferredAntiAffinity []WeightedTerm
}

// What a container that asks for no CPU or memory is taken to use when nodes are
// compared (never when it is decided whether a pod fits).
var assumedRequests = v1.ResourceList{
	v1.ResourceCPU:    *resource.NewMilliQuantity(100, resource.DecimalSI),
	v1.ResourceMemory: *resource.NewQuantity(200*1024*1024, resource.BinarySI),
}

// NewPod works out what scheduling asks of a pod. The object is kept and must not
// be changed by anyone.
func NewPod(pod *v1.Pod) *Pod {
	// While a container is being resized, what is allocated counts as well as what
	// is wanted (KEP-1287).
	opts := podresource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}
	p := &Pod{
		Pod:      pod,
		Priority: corev1.PodPriority(pod),
		Requests: ResourcesOf(podresource.PodRequests(pod, opts)),
		Ports:    hostPorts(pod),
	}
	opts.NonMissingContainerRequests = assumedRequests
	p.Weight = ResourcesOf(podresource.PodRequests(pod, opts))
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.Owner = owner.UID
	}
	p.parseAffinity()
	return p
}

func (p *Pod) parseAffinity() {
	affinity := p.Spec.Affinity
	if affinity == nil {
		return
	}
	if a := affinity.PodAffinity; a != nil {
		p.Affinity = p.terms(a.RequiredDuringSchedulingIgnoredDuringExecution)
		p.PreferredAffinity = p.weightedTerms(a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		p.AntiAffinity = p.terms(a.RequiredDuringSchedulingIgnoredDuringExecution)
		p.PreferredAntiAffinity = p.weightedTerms(a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// HasAffinity tells whether the pod says anything about other pods.
func (p *Pod) HasAffinity() bool {
	return len(p.Affinity)+len(p.AntiAffinity)+len(p.PreferredAffinity)+len(p.PreferredAntiAffinity) > 0
}

// Assigned tells whether the API has given the pod a node.
func (p *Pod) Assigned() bool { return p.Spec.NodeName != "" }

// Terminal tells whether the pod has ended for good and so holds no resources.
func (p *Pod) Terminal() bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// Term is one term of pod affinity or anti-affinity: a set of pods, and the label
// of nodes which says what "together" means.
type Term struct {
	TopologyKey       string
	namespaces        map[string]bool
	namespaceSelector labels.Selector
	selector          labels.Selector
}

// WeightedTerm is a term that is a wish.
type WeightedTerm struct {
	Term
	Weight int64
}

// Matches tells whether the term speaks of a pod. The labels are those of the
// pod's namespace.
func (t *Term) Matches(pod *Pod, namespace labels.Set) bool {
	if !t.namespaces[pod.Namespace] && !t.namespaceSelector.Matches(namespace) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// MatchesAll tells whether every one of some terms speaks of a pod; no terms speak
// of none.
func MatchesAll(terms []Term, pod *Pod, namespace labels.Set) bool {
	for i := range terms {
		if !terms[i].Matches(pod, namespace) {
			return false
		}
	}
	return len(terms) > 0
}

// MatchesAny tells whether one of some terms speaks of a pod.
func MatchesAny(terms []Term, pod *Pod, namespace labels.Set) bool {
	for i := range terms {
		if terms[i].Matches(pod, namespace) {
			return true
		}
	}
	return false
}

func (p *Pod) terms(terms []v1.PodAffinityTerm) []Term {
	parsed := make([]Term, 0, len(terms))
	for i := range terms {
		parsed = append(parsed, p.term(&terms[i]))
	}
	return parsed
}

func (p *Pod) weightedTerms(terms []v1.WeightedPodAffinityTerm) []WeightedTerm {
	parsed := make([]WeightedTerm, 0, len(terms))
	for i := range terms {
		parsed = append(parsed, WeightedTerm{Term: p.term(&terms[i].PodAffinityTerm), Weight: int64(terms[i].Weight)})
	}
	return parsed
}

// term parses one term. Namespaces that are neither listed nor selected mean the
// pod's own.
func (p *Pod) term(t *v1.PodAffinityTerm) Term {
	namespaces := map[string]bool{}
	for _, name := range t.Namespaces {
		namespaces[name] = true
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces[p.Namespace] = true
	}
	return Term{
		TopologyKey:       t.TopologyKey,
		namespaces:        namespaces,
		namespaceSelector: Selector(t.NamespaceSelector),
		selector:          Selector(t.LabelSelector),
	}
}

// Selector parses a label selector. One that cannot be parsed, which validation
// lets nobody write, matches nothing.
func Selector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}
