// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podsecurity holds pods to the Pod Security Standard that their
// namespace names in its labels (KEP-2579): what its level forbids is refused
// (enforce), warned of (warn) or noted in the audit log (audit); of what makes
// pods, such as a Deployment, users are only warned. A namespace without labels
// is privileged, and nobody is exempt.
//
// The standards and the way requests are held to them are the library's
// (k8s.io/pod-security-admission); this package hands it requests, and its answer
// to the client.
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
	judge      *podsecurity.Admission
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

// ValidateInitialization implements admission.InitializationValidator: with all
// that the plugin was given, the judge is complete.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.namespaces == nil {
		return fmt.Errorf("%s needs a client and informers", Name)
	}
	defaults, err := load.LoadFromData(nil)
	if err != nil {
		return err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	p.judge = &podsecurity.Admission{
		Configuration:    defaults,
		Evaluator:        evaluator,
		Metrics:          uncounted{},
		PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter:  podsecurity.NamespaceGetterFromListerAndClient(p.namespaces, p.client),
		PodLister:        podsecurity.PodListerFromInformer(p.pods),
	}
	if err := p.judge.CompleteConfiguration(); err != nil {
		return err
	}
	return p.judge.ValidateConfiguration()
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if resource := a.GetResource().GroupResource(); !applies(resource) {
		return nil
	}
	answer := p.judge.Validate(ctx, request(a))
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

// refusal is a 403 but where the judge says more. Its answers are shared: they
// are read alone.
func refusal(a admission.Attributes, said *metav1.Status) error {
	//lint:ignore ST1005 upstream's words
	refusal := admission.NewForbidden(a, errors.New("Not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if said == nil || !errors.As(refusal, &status) {
		return refusal
	}
	if said.Message != "" {
		status.ErrStatus.Message = said.Message
	}
	if said.Reason != "" {
		status.ErrStatus.Reason = said.Reason
	}
	if said.Details != nil {
		status.ErrStatus.Details = said.Details
	}
	if said.Code != 0 {
		status.ErrStatus.Code = said.Code
	}
	return refusal
}

// uncounted records nothing: the library's metrics would be registered for the
// whole process, in which several clusters live.
type uncounted struct{}

func (uncounted) RecordEvaluation(metrics.Decision, api.LevelVersion, metrics.Mode, api.Attributes) {}
func (uncounted) RecordExemption(api.Attributes)                                                    {}
func (uncounted) RecordError(bool, api.Attributes)                                                  {}
