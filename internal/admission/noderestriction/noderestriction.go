// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package noderestriction limits a node's writes to its own objects: its Node, its
// lease, the status of its pods, its mirror pods, and tokens for its pods. The node
// authorizer decides by user, verb and resource; this plugin decides by the object
// in the request, which authorizers do not see.
//
// Without it, a compromised node could attract any pod by changing its own labels
// and taints, and so obtain the pod's secrets.
package noderestriction

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/kindred-project/kindred/internal/auth/node"
)

// Name is the plugin's name in the API server's configuration.
const Name = "NodeRestriction"

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	client     kubernetes.Interface
	pods       listers.PodLister
	nodes      listers.NodeLister
	authorizer authorizer.UnconditionalAuthorizer
}

var (
	_ admission.MutationInterface                  = &Plugin{}
	_ initializer.WantsExternalKubeClientSet       = &Plugin{}
	_ initializer.WantsExternalKubeInformerFactory = &Plugin{}
	_ initializer.WantsUnconditionalAuthorizer     = &Plugin{}
)

// New returns the plugin.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.pods = f.Core().V1().Pods().Lister()
	p.nodes = f.Core().V1().Nodes().Lister()
}

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.pods == nil || p.nodes == nil || p.authorizer == nil {
		return fmt.Errorf("%s needs a client, informers and an authorizer", Name)
	}
	return nil
}

// request is a request made by a node.
type request struct {
	admission.Attributes
	node string
}

// refuse returns a Forbidden error with a reason.
func (r request) refuse(format string, args ...any) error {
	return admission.NewForbidden(r, fmt.Errorf(format, args...))
}

// unexpected refuses an object of the wrong type.
func (r request) unexpected(obj any) error { return r.refuse("unexpected type %T", obj) }

// Admit implements admission.MutationInterface. It mutates nothing; it runs among
// the mutating plugins to see a TokenRequest as the node sent it, before its
// audiences are defaulted.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	name, isNode := node.Identity(a.GetUserInfo())
	if !isNode {
		return nil
	}
	r := request{Attributes: a, node: name}
	if name == "" {
		return r.refuse("could not determine node from user %q", a.GetUserInfo().GetName())
	}
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return p.admitPod(ctx, r)
	case corev1.Resource("nodes"):
		return admitNode(r)
	case corev1.Resource("persistentvolumeclaims"):
		return admitClaim(r)
	case corev1.Resource("serviceaccounts"):
		return p.admitToken(ctx, r)
	case certificatesv1.Resource("podcertificaterequests"):
		return p.admitPodCertificate(ctx, r)
	case certificatesv1.Resource("certificatesigningrequests"):
		return admitCertificate(r)
	case coordinationv1.Resource("leases"):
		return admitLease(r)
	case storagev1.Resource("csinodes"):
		return admitSameName(r, "CSINode")
	case resourcev1.Resource("resourceslices"):
		return admitSlice(r)
	default:
		return nil
	}
}

// pod returns a pod from the cache, or from the API if the cache does not have it.
func (p *Plugin) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := p.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return pod, err
}

// assignedPod returns a pod from the cache if it is bound to the node there, or else
// from the API. An agent requests a pod's token as soon as it sees the pod, which may
// be before the cache does.
func (p *Plugin) assignedPod(ctx context.Context, namespace, name, node string) (*corev1.Pod, error) {
	pod, err := p.pods.Pods(namespace).Get(name)
	if err == nil && pod.Spec.NodeName == node {
		return pod, nil
	}
	return p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// nodeObject returns a Node from the cache, or from the API if the cache does not have
// it.
func (p *Plugin) nodeObject(ctx context.Context, name string) (*corev1.Node, error) {
	found, err := p.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return p.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
	return found, err
}

// isAllowed reports whether the node is authorized for a verb that lifts a
// restriction.
func (p *Plugin) isAllowed(ctx context.Context, r request, verb, resource, name string) (bool, error) {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            r.GetUserInfo(),
		Verb:            verb,
		APIGroup:        r.GetResource().Group,
		APIVersion:      r.GetResource().Version,
		Resource:        resource,
		Namespace:       r.GetNamespace(),
		Name:            name,
		ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}
