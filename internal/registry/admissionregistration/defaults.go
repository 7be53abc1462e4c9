// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"cmp"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	defaultTimeoutSeconds int32 = 10
	defaultServicePort    int32 = 443
)

func SetDefaults_ValidatingWebhook(w *admissionv1.ValidatingWebhook) {
	w.FailurePolicy = cmp.Or(w.FailurePolicy, new(admissionv1.Fail))
	w.MatchPolicy = cmp.Or(w.MatchPolicy, new(admissionv1.Equivalent))
	w.NamespaceSelector = cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{})
	w.ObjectSelector = cmp.Or(w.ObjectSelector, &metav1.LabelSelector{})
	w.TimeoutSeconds = cmp.Or(w.TimeoutSeconds, new(defaultTimeoutSeconds))
}

func SetDefaults_MutatingWebhook(w *admissionv1.MutatingWebhook) {
	w.FailurePolicy = cmp.Or(w.FailurePolicy, new(admissionv1.Fail))
	w.MatchPolicy = cmp.Or(w.MatchPolicy, new(admissionv1.Equivalent))
	w.NamespaceSelector = cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{})
	w.ObjectSelector = cmp.Or(w.ObjectSelector, &metav1.LabelSelector{})
	w.TimeoutSeconds = cmp.Or(w.TimeoutSeconds, new(defaultTimeoutSeconds))
	w.ReinvocationPolicy = cmp.Or(w.ReinvocationPolicy, new(admissionv1.NeverReinvocationPolicy))
}

func SetDefaults_Rule(r *admissionv1.Rule) {
	r.Scope = cmp.Or(r.Scope, new(admissionv1.AllScopes))
}

func SetDefaults_ServiceReference(s *admissionv1.ServiceReference) {
	s.Port = cmp.Or(s.Port, new(defaultServicePort))
}

func SetDefaults_ValidatingAdmissionPolicySpec(s *admissionv1.ValidatingAdmissionPolicySpec) {
	s.FailurePolicy = cmp.Or(s.FailurePolicy, new(admissionv1.Fail))
}

func SetDefaults_MutatingAdmissionPolicySpec(s *admissionv1.MutatingAdmissionPolicySpec) {
	s.FailurePolicy = cmp.Or(s.FailurePolicy, new(admissionv1.Fail))
}

func SetDefaults_MatchResources(m *admissionv1.MatchResources) {
	m.MatchPolicy = cmp.Or(m.MatchPolicy, new(admissionv1.Equivalent))
	m.NamespaceSelector = cmp.Or(m.NamespaceSelector, &metav1.LabelSelector{})
	m.ObjectSelector = cmp.Or(m.ObjectSelector, &metav1.LabelSelector{})
}
