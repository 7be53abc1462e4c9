// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podsecurity applies the Pod Security Standard that a namespace names in its
// labels (KEP-2579). A violation by a pod is refused (enforce), answered with a
// warning (warn) or recorded in the audit log (audit); a violation by a pod template,
// such as a Deployment's, is never refused. A namespace without labels is privileged.
// There are no exemptions.
//
// k8s.io/pod-security-admission implements the standards and evaluates requests; this
// package adapts it to the API server.
package podsecurity

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

// Name is the plugin's name in the API server's configuration.
const Name = "PodSecurity"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	client     kubernetes.Interface
	namespaces listers.NamespaceLister
	pods       listers.PodLister
	evaluator  *podsecurity.Admission
}

var (
	_ admission.ValidationInterface                = &Plugin{}
	_ initializer.WantsExternalKubeClientSet       = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	namespaces := f.Core().V1().Namespaces()
	p.namespaces = namespaces.Lister()
	p.pods = f.Core().V1().Pods().Lister()
	p.SetReadyFunc(namespaces.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator. It builds the
// evaluator, for which the plugin now has all dependencies.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.namespaces == nil {
		return fmt.Errorf("%s needs a client and informers", Name)
	}
	defaults, err := load.LoadFromData(nil)
	if err != nil {
		return err
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	p.evaluator = &podsecurity.Admission{
		Configuration:    defaults,
		Evaluator:        checks,
		Metrics:          noMetrics{},
		PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter:  podsecurity.NamespaceGetterFromListerAndClient(p.namespaces, p.client),
		PodLister:        podsecurity.PodListerFromInformer(p.pods),
	}
	if err := p.evaluator.CompleteConfiguration(); err != nil {
		return err
	}
	return p.evaluator.ValidateConfiguration()
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if resource := a.GetResource().GroupResource(); !applies(resource) {
		return nil
	}
	answer := p.evaluator.Validate(ctx, request(a))
	for _, text := range answer.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for key, value := range answer.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, api.AuditAnnotationPrefix+key, value)
	}
	if answer.Allowed {
		return nil
	}
	return refusal(a, answer.Result)
}

func applies(resource schema.GroupResource) bool {
	return resource == corev1.Resource("namespaces") || podsecurity.DefaultPodSpecExtractor{}.HasPodSpec(resource)
}

func request(a admission.Attributes) *api.AttributesRecord {
	return &api.AttributesRecord{
		Name: a.GetName(), Namespace: a.GetNamespace(), Username: a.GetUserInfo().GetName(),
		Kind: a.GetKind(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Operation: admissionv1.Operation(a.GetOperation()),
		Object:    a.GetObject(), OldObject: a.GetOldObject(),
	}
}

// refusal returns a 403 with the details of the evaluator's result. Results are shared
// and must not be modified.
func refusal(a admission.Attributes, result *metav1.Status) error {
	//lint:ignore ST1005 upstream's words
	refusal := admission.NewForbidden(a, errors.New("Not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if result == nil || !errors.As(refusal, &status) {
		return refusal
	}
	if result.Message != "" {
		status.ErrStatus.Message = result.Message
	}
	if result.Reason != "" {
		status.ErrStatus.Reason = result.Reason
	}
	if result.Details != nil {
		status.ErrStatus.Details = result.Details
	}
	if result.Code != 0 {
		status.ErrStatus.Code = result.Code
	}
	return refusal
}

// noMetrics records nothing. The metrics of k8s.io/pod-security-admission are global,
// and several clusters may run in this process.
type noMetrics struct{}

func (noMetrics) RecordEvaluation(metrics.Decision, api.LevelVersion, metrics.Mode, api.Attributes) {}
func (noMetrics) RecordExemption(api.Attributes)                                                    {}
func (noMetrics) RecordError(bool, api.Attributes)                                                  {}
