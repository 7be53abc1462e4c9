// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimeclass copies from a pod's RuntimeClass the overhead that the
// scheduler must count, and the node selector and tolerations of the nodes that
// have the runtime (KEP-688, KEP-894).
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/node/v1"

	"github.com/kindred-project/kindred/internal/admission/informer"
)

// Name is the plugin's name in the API server's configuration.
const Name = "RuntimeClass"

// Plugin is the admission plugin.
type Plugin struct {
	*informer.Handler[listers.RuntimeClassLister]
	client kubernetes.Interface
}

var (
	_ admission.MutationInterface            = &Plugin{}
	_ admission.ValidationInterface          = &Plugin{}
	_ initializer.WantsExternalKubeClientSet = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: informer.New(Name, func(f informers.SharedInformerFactory) informer.Informer[listers.RuntimeClassLister] {
		return f.Node().V1().RuntimeClasses()
	}, admission.Create)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return fmt.Errorf("%s needs a client", Name)
	}
	return p.Handler.ValidateInitialization()
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.objects(ctx, a)
	if err != nil || pod == nil || class == nil {
		return err
	}
	if overhead := overheadOf(class); overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(overhead, pod.Spec.Overhead) {
			return admission.NewForbidden(a, errMismatch)
		}
		pod.Spec.Overhead = overhead.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	if err := selectNodes(pod, class.Scheduling); err != nil {
		return admission.NewForbidden(a, err)
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

// Validate implements admission.ValidationInterface. After all mutation, a pod's overhead must
// equal that of its class.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.objects(ctx, a)
	if err != nil || pod == nil {
		return err
	}
	overhead := overheadOf(class)
	switch {
	case overhead == nil && pod.Spec.Overhead != nil:
		return admission.NewForbidden(a, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	case overhead != nil && !equality.Semantic.DeepEqual(overhead, pod.Spec.Overhead):
		return admission.NewForbidden(a, errMismatch)
	default:
		return nil
	}
}

var errMismatch = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")

func overheadOf(class *nodev1.RuntimeClass) corev1.ResourceList {
	if class == nil || class.Overhead == nil {
		return nil
	}
	return class.Overhead.PodFixed
}

// objects returns the pod of a request and its class. The pod is nil if the request
// is not for a pod; the class is nil if the pod has none.
func (p *Plugin) objects(ctx context.Context, a admission.Attributes) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	if a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil, nil, nil
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil, nil, apierrors.NewBadRequest("Resource was marked with kind Pod but was unable to be converted")
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	class, err := p.Lister.Get(name)
	if apierrors.IsNotFound(err) {
		// The cache may be stale.
		class, err = p.client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil, admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	return pod, class, err
}

// selectNodes adds a class's node selector to a pod's.
func selectNodes(pod *corev1.Pod, scheduling *nodev1.Scheduling) error {
	for key, value := range scheduling.NodeSelector {
		if own, ok := pod.Spec.NodeSelector[key]; ok && own != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, own)
		}
	}
	if pod.Spec.NodeSelector == nil && len(scheduling.NodeSelector) > 0 {
		pod.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.Spec.NodeSelector, scheduling.NodeSelector)
	return nil
}

// mergeTolerations returns the tolerations of both lists, without those that another
// one covers. The first of equal ones is kept.
func mergeTolerations(first, second []corev1.Toleration) []corev1.Toleration {
	all := append(append([]corev1.Toleration{}, first...), second...)
	var merged []corev1.Toleration
	for i, t := range all {
		if !isRedundant(t, all[:i], all[i+1:]) {
			merged = append(merged, t)
		}
	}
	return merged
}

func isRedundant(t corev1.Toleration, before, after []corev1.Toleration) bool {
	for _, other := range before {
		if covers(other, t) {
			return true
		}
	}
	for _, other := range after {
		if covers(other, t) && !covers(t, other) {
			return true
		}
	}
	return false
}

// covers reports whether wide tolerates all that t tolerates.
func covers(wide, t corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(wide, t) {
		return true
	}
	if t.Key != wide.Key && (wide.Key != "" || wide.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != wide.Effect && wide.Effect != "" {
		return false
	}
	// A limited period covers only shorter ones.
	if limit := wide.TolerationSeconds; limit != nil && wide.Effect == corev1.TaintEffectNoExecute {
		if t.TolerationSeconds == nil || *t.TolerationSeconds > *limit {
			return false
		}
	}
	switch wide.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && t.Value == wide.Value
	default:
		return false
	}
}
