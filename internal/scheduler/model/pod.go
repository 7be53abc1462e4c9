// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/storage/ephemeral"
)

// Pod is a pod with its parsed scheduling requirements. It is immutable.
type Pod struct {
	*v1.Pod
	Priority int32
	// Requests are the pod's effective requests: the pod-level requests if it has any, or else the
	// greater of the requests of its init containers and its containers; plus its overhead.
	Requests Resources
	// Weight is Requests for comparing nodes. A container without requests counts a little, so that
	// such pods do not gather on one node.
	Weight Resources
	// Ports are the pod's host ports.
	Ports []Port
	// Owner is the UID of the pod's controller, if it has one.
	Owner types.UID
	// Group is the key of the pod's PodGroup; its name is empty if the pod is in none.
	Group types.NamespacedName
	// Claims are the pod's volumes that a PersistentVolumeClaim provides.
	Claims []Claim

	Affinity              []Term
	AntiAffinity          []Term
	PreferredAffinity     []WeightedTerm
	PreferredAntiAffinity []WeightedTerm
}

// Claim is a volume of a pod that a PersistentVolumeClaim provides.
type Claim struct {
	Key types.NamespacedName
	// Ephemeral is whether the claim is created for the pod and deleted with it (KEP-1698).
	Ephemeral bool
}

// assumedRequests are assumed for a container without requests for CPU or memory when nodes are
// scored. They do not count when a filter checks whether a pod fits.
var assumedRequests = v1.ResourceList{
	v1.ResourceCPU:    *resource.NewMilliQuantity(100, resource.DecimalSI),
	v1.ResourceMemory: *resource.NewQuantity(200*1024*1024, resource.BinarySI),
}

// NewPod parses a pod. It keeps the object, which must not be changed.
func NewPod(pod *v1.Pod) *Pod {
	// During a resize, the greater of allocated and desired resources counts (KEP-1287).
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
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		p.Group = p.key(*group.PodGroupName)
	}
	p.parseAffinity()
	p.parseClaims()
	return p
}

func (p *Pod) parseClaims() {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			p.addClaim(Claim{Key: p.key(v.PersistentVolumeClaim.ClaimName)})
		case v.Ephemeral != nil:
			p.addClaim(Claim{Key: p.key(ephemeral.VolumeClaimName(p.Pod, v)), Ephemeral: true})
		}
	}
}

// addClaim adds a claim. A claim that several volumes use counts once.
func (p *Pod) addClaim(claim Claim) {
	if !slices.Contains(p.Claims, claim) {
		p.Claims = append(p.Claims, claim)
	}
}

// key returns the key of an object in the pod's namespace.
func (p *Pod) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: name}
}

// Uses reports whether a claim provides a volume of the pod.
func (p *Pod) Uses(claim types.NamespacedName) bool {
	return slices.ContainsFunc(p.Claims, func(c Claim) bool { return c.Key == claim })
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

// HasAffinity reports whether the pod has pod affinity or anti-affinity.
func (p *Pod) HasAffinity() bool {
	return len(p.Affinity)+len(p.AntiAffinity)+len(p.PreferredAffinity)+len(p.PreferredAntiAffinity) > 0
}

// IsInGroup reports whether the pod is scheduled with its PodGroup.
func (p *Pod) IsInGroup() bool { return p.Group.Name != "" }

// Assigned reports whether the pod has a node in the API.
func (p *Pod) IsAssigned() bool { return p.Spec.NodeName != "" }

// Terminal reports whether the pod has ended and holds no resources.
func (p *Pod) IsTerminal() bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// Term is one term of pod affinity or anti-affinity: a set of pods, and a topology key of nodes.
type Term struct {
	TopologyKey       string
	namespaces        map[string]bool
	namespaceSelector labels.Selector
	selector          labels.Selector
}

// WeightedTerm is a preferred term.
type WeightedTerm struct {
	Term
	Weight int64
}

// Matches reports whether the term selects a pod. namespace holds the labels of the pod's namespace.
func (t *Term) Matches(pod *Pod, namespace labels.Set) bool {
	if !t.namespaces[pod.Namespace] && !t.namespaceSelector.Matches(namespace) {
		return false
	}
	return t.selector.Matches(labels.Set(pod.Labels))
}

// MatchesAll reports whether all terms select a pod. Without terms it returns false.
func MatchesAll(terms []Term, pod *Pod, namespace labels.Set) bool {
	for i := range terms {
		if !terms[i].Matches(pod, namespace) {
			return false
		}
	}
	return len(terms) > 0
}

// MatchesAny reports whether one of the terms selects a pod.
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

// term parses one term. Without namespaces and namespace selector, it selects in the pod's
// namespace.
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

// Selector parses a label selector. An invalid one, which validation refuses, matches nothing.
func Selector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}
