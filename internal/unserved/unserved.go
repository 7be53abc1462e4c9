// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package unserved

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is the reason of the events.
const Reason = "NotActedOn"

// Cluster is what some Facts depend on.
type Cluster interface {
	// Nodes returns all nodes.
	Nodes() []*corev1.Node
	// IngressClasses returns all IngressClasses.
	IngressClasses() []*networkingv1.IngressClass
	// HasResourceClaim reports whether there is a ResourceClaim.
	HasResourceClaim(namespace, name string) bool
}

// Fact is something that the API accepts and nothing acts on.
type Fact struct {
	// Kind and Field say where it is, for the documentation.
	Kind, Field string
	// Effect is what happens instead, for the documentation.
	Effect string
	// EventBy names the part that records an event about it. If it is empty, the controller of this mechanism does.
	EventBy string
	// Waits is set if the Fact holds only as long as no other program acts on the object. Its event is recorded
	// after a delay, if Acted is false then.
	Waits bool
}

// Finding is a Fact that holds for an object.
type Finding struct {
	*Fact
	// Text is for people: the path of the field, a colon, and what does not happen.
	Text string
}

// Find returns the Facts that hold for an object. Objects of other kinds than those of the Facts have none.
func Find(object any, cluster Cluster) []Finding {
	if spec, path := podSpec(object); spec != nil {
		return append(findInPod(object.(metav1.Object).GetNamespace(), spec, path, cluster), findInJob(object)...)
	}
	switch o := object.(type) {
	case *corev1.Service:
		return findInService(o)
	case *corev1.PersistentVolume:
		return findInVolume(o)
	case *networkingv1.Ingress:
		return findInIngress(o, cluster)
	case *certificatesv1.CertificateSigningRequest:
		return findInSigningRequest(o)
	}
	return nil
}

// New returns the texts of the findings for an object that do not hold for its old version; old is nil for a new
// object.
func New(object, old any, cluster Cluster) []string {
	found := Find(object, cluster)
	if len(found) == 0 {
		return nil
	}
	var before, texts []string
	if old != nil {
		for _, f := range Find(old, cluster) {
			before = append(before, f.Text)
		}
	}
	for _, f := range found {
		if !slices.Contains(before, f.Text) {
			texts = append(texts, f.Text)
		}
	}
	return texts
}

// Acted reports whether another program acts on an object that a Fact with Waits is about.
func Acted(object any) bool {
	switch o := object.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName != "" || o.Status.Phase != corev1.PodPending || slices.ContainsFunc(o.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	case *corev1.Service:
		return len(o.Status.LoadBalancer.Ingress) > 0 || len(o.Status.Conditions) > 0
	case *networkingv1.Ingress:
		return len(o.Status.LoadBalancer.Ingress) > 0
	case *batchv1.Job:
		return o.Status.StartTime != nil || len(o.Status.Conditions) > 0
	case *certificatesv1.CertificateSigningRequest:
		return len(o.Status.Certificate) > 0 || len(o.Status.Conditions) > 0
	}
	return false
}
